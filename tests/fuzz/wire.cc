// SPDX-License-Identifier: Apache-2.0
//
// The border under hostile bytes: each message that crosses it, from raw bytes or from a valid
// message of which some fields were changed. Proves that the border
//   1. never ends the process, whatever it is given;
//   2. lets in only what its limits allow (border_rules.h), and says why not in words;
//   3. loses nothing: what it let in, written and read again, is equal.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "launcher/rendezvous/shell/control_wire.h"
#include "muster/v1/control.pb.h"
#include "proto/wire/job.h"
#include "proto/wire/messages.h"
#include "tests/fuzz/bend.h"
#include "tests/fuzz/border_rules.h"
#include "tests/fuzz/input.h"
#include "tests/unit/wire/random_messages.h"

namespace muster::fuzz {
namespace {

using test::RandomMessages;

constexpr std::size_t kAgentBodies = std::variant_size_v<AgentBody>;
constexpr std::size_t kServerBodies = std::variant_size_v<ServerBody>;

void expect_words(const absl::Status& status) {
  expect(status.code() == absl::StatusCode::kInvalidArgument && !status.message().empty(),
         "a refusal is kInvalidArgument with words");
}

v1::AgentMessage valid(std::uint64_t seed, v1::AgentMessage*) {
  RandomMessages made(seed);
  const std::uint64_t which = Rng::mix(seed) % (kAgentBodies + 1);
  return which < kAgentBodies ? wire::to_wire(made.agent_message(which))
                              : wire::to_wire(made.store_request());
}
v1::ServerMessage valid(std::uint64_t seed, v1::ServerMessage*) {
  RandomMessages made(seed);
  const std::uint64_t which = Rng::mix(seed) % (kServerBodies + 1);
  return which < kServerBodies ? wire::to_wire(made.server_message(which))
                               : wire::to_wire(made.store_reply());
}

// A message from the bytes: as they are, or a valid one with some of its fields bent.
template <class Message>
Message message_from(Input& input) {
  Message message;
  if (input.one_in(4)) {
    message.ParsePartialFromString(input.rest());
    return message;
  }
  message = valid(input.number(2), &message);
  bend(message, input, input.below(6));
  return message;
}

template <class Message>
void cross(Input& input) {
  const auto message = message_from<Message>(input);
  const auto let_in = wire::from_wire(message);
  if (!let_in.ok()) return expect_words(let_in.status());
  const Message written = std::visit([](const auto& m) { return wire::to_wire(m); }, *let_in);
  expect_in_range(written);
  const auto again = wire::from_wire(written);
  expect(again.ok(), "what was let in may come again", again.status().ToString());
  expect(*again == *let_in, "nothing is lost on the way", written.ShortDebugString());
}

// The parts that other borders (control, the journal) share, each alone.
template <class Domain, class Message>
void cross_part(const Message& message) {
  using rendezvous::read;
  using rendezvous::write;
  using wire::read;
  using wire::write;
  wire::Border border;
  const Domain let_in = read(message, border);
  if (!border.ok()) return expect_words(border.status());
  Message written;
  write(let_in, written);
  expect_in_range(written);
  wire::Border second;
  expect(read(written, second) == let_in, "nothing is lost on the way", written.GetTypeName());
  expect(second.ok(), "what was let in may come again", second.status().ToString());
}

rendezvous::JobView job_view(const v1::Join& join, const v1::OutcomeNotice& notice) {
  rendezvous::JobView view;
  wire::Border border;
  view.spec = wire::read(join.spec(), border);
  view.outcome = wire::read(notice.outcome(), border);
  rendezvous::MemberView member;
  member.node = join.node().name();
  member.ranks = MemberRanks{member.node, 0, 0, 1};
  member.progress = {{0, 7, 3, 1s}};
  view.members = {member, member};
  view.last_failure = view.outcome->first_cause;
  return view;
}

void cross_parts(Input& input) {
  RandomMessages made(input.number(2));
  const v1::AgentMessage agent = wire::to_wire(made.agent_message(0));
  const v1::ServerMessage server = wire::to_wire(made.server_message(8));
  v1::JobDescription description;
  write(job_view(agent.join(), server.outcome()), description);
  v1::JobEvent event = wire::to_wire(made.server_message(7)).job_event().event();
  v1::Assignment assignment = wire::to_wire(made.server_message(3)).prepare().assignment();
  switch (input.below(5)) {
    case 0: bend(description, input, 6); return cross_part<rendezvous::JobView>(description);
    case 1: bend(event, input, 6); return cross_part<JobEvent>(event);
    case 2: bend(assignment, input, 6); return cross_part<Assignment>(assignment);
    case 3:
      description.ParsePartialFromString(input.rest());
      return cross_part<rendezvous::JobView>(description);
    default: {
      v1::JobSpec spec = agent.join().spec();
      bend(spec, input, 6);
      return cross_part<JobSpec>(spec);
    }
  }
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Input input(data, size);
  switch (input.below(5)) {
    case 0:
    case 1: muster::fuzz::cross<muster::v1::AgentMessage>(input); break;
    case 2:
    case 3: muster::fuzz::cross<muster::v1::ServerMessage>(input); break;
    default: muster::fuzz::cross_parts(input);
  }
  return 0;
}
