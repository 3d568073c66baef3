// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/messages.h"

#include <catch2/catch.hpp>

#include "tests/unit/wire/random_messages.h"

namespace muster {
namespace {

using test::RandomMessages;

constexpr std::size_t kAgentBodies = std::variant_size_v<AgentBody>;
constexpr std::size_t kServerBodies = std::variant_size_v<ServerBody>;

// Through bytes, as over the network.
template <class Wire>
Wire through_bytes(const Wire& message) {
  Wire out;
  REQUIRE(out.ParseFromString(message.SerializeAsString()));
  return out;
}

// The complaint about a message that was good before `spoil`.
template <class Spoil>
std::string complaint(AgentMessage message, Spoil spoil) {
  v1::AgentMessage wire = wire::to_wire(message);
  spoil(wire);
  const auto read = wire::from_wire(wire);
  return read.ok() ? "" : std::string(read.status().message());
}
template <class Spoil>
std::string complaint(ServerMessage message, Spoil spoil) {
  v1::ServerMessage wire = wire::to_wire(message);
  spoil(wire);
  const auto read = wire::from_wire(wire);
  return read.ok() ? "" : std::string(read.status().message());
}

template <class Body>
constexpr std::size_t agent_index() {
  return AgentBody(Body{}).index();
}
template <class Body>
constexpr std::size_t server_index() {
  return ServerBody(Body{}).index();
}

}  // namespace

TEST_CASE("every agent message crosses unchanged", "[wire]") {
  RandomMessages random(1);
  for (std::size_t alternative = 0; alternative < kAgentBodies; ++alternative) {
    for (int i = 0; i < 200; ++i) {
      const AgentMessage message = random.agent_message(alternative);
      REQUIRE(message.body.index() == alternative);
      const auto read = wire::from_wire(through_bytes(wire::to_wire(message)));
      INFO(read.status().ToString());
      REQUIRE(read.ok());
      REQUIRE(std::get<AgentMessage>(*read) == message);
    }
  }
}

TEST_CASE("every server message crosses unchanged", "[wire]") {
  RandomMessages random(2);
  for (std::size_t alternative = 0; alternative < kServerBodies; ++alternative) {
    for (int i = 0; i < 200; ++i) {
      const ServerMessage message = random.server_message(alternative);
      REQUIRE(message.body.index() == alternative);
      const auto read = wire::from_wire(through_bytes(wire::to_wire(message)));
      INFO(read.status().ToString());
      REQUIRE(read.ok());
      REQUIRE(std::get<ServerMessage>(*read) == message);
    }
  }
}

TEST_CASE("store requests and replies cross unchanged", "[wire]") {
  RandomMessages random(3);
  for (int i = 0; i < 500; ++i) {
    const StoreRequest request = random.store_request();
    const auto asked = wire::from_wire(through_bytes(wire::to_wire(request)));
    REQUIRE(asked.ok());
    REQUIRE(std::get<StoreRequest>(*asked) == request);
    const StoreReply reply = random.store_reply();
    const auto answered = wire::from_wire(through_bytes(wire::to_wire(reply)));
    REQUIRE(answered.ok());
    REQUIRE(std::get<StoreReply>(*answered) == reply);
  }
}

TEST_CASE("damaged messages are refused or harmless, never fatal", "[wire]") {
  RandomMessages random(4);
  int parsed = 0;
  int refused = 0;
  for (int i = 0; i < 30000; ++i) {
    std::string bytes;
    if (i % 10 == 0) {
      bytes = random.noise(64);
    } else if (i % 2 == 0) {
      bytes = wire::to_wire(random.agent_message(random.number(kAgentBodies))).SerializeAsString();
    } else {
      bytes =
          wire::to_wire(random.server_message(random.number(kServerBodies))).SerializeAsString();
    }
    for (std::uint32_t n = 1 + random.number(3); n > 0; --n)
      random.damage(bytes);
    v1::AgentMessage from_agent;
    if (from_agent.ParseFromString(bytes)) {
      ++parsed;
      const auto read = wire::from_wire(from_agent);
      if (!read.ok()) {
        ++refused;
        // A complaint names a field.
        REQUIRE(read.status().message().find(": ") != absl::string_view::npos);
      }
    }
    v1::ServerMessage from_server;
    if (from_server.ParseFromString(bytes)) {
      const auto read = wire::from_wire(from_server);
      if (read.ok() && std::holds_alternative<ServerMessage>(*read)) {
        const auto* prepare = std::get_if<Prepare>(&std::get<ServerMessage>(*read).body);
        if (prepare != nullptr) {
          std::uint64_t ranks = 0;
          for (const MemberRanks& member : prepare->assignment.members)
            ranks += member.count;
          REQUIRE(ranks == prepare->assignment.world_size);
        }
      }
    }
  }
  // The damage was neither total nor absent.
  REQUIRE(parsed > 1000);
  REQUIRE(refused > 1000);
}

TEST_CASE("what is out of range is refused by the field's name", "[wire]") {
  RandomMessages random(5);
  const AgentMessage join = random.agent_message(agent_index<Join>());
  const auto spoilt = [&](auto spoil) { return complaint(join, spoil); };

  CHECK(spoilt([](v1::AgentMessage&) {}).empty());
  CHECK(spoilt([](v1::AgentMessage& m) { m.clear_body(); }) == "body: missing or unknown");
  CHECK(spoilt([](v1::AgentMessage& m) { m.clear_envelope(); }) == "envelope: missing");
  CHECK(spoilt([](v1::AgentMessage& m) {
          m.mutable_envelope()->set_generation(-2);
        }).rfind("envelope.generation: is -2", 0) == 0);
  CHECK(spoilt([](v1::AgentMessage& m) { m.mutable_join()->clear_spec(); }) ==
        "join.spec: missing");
  CHECK(spoilt([](v1::AgentMessage& m) {
          m.mutable_join()->mutable_spec()->set_min_nodes(0);
        }).rfind("join.spec.min_nodes: is 0, must be 1 to", 0) == 0);
  CHECK(spoilt([](v1::AgentMessage& m) {
          m.mutable_join()->mutable_spec()->set_min_nodes(9);
          m.mutable_join()->mutable_spec()->set_max_nodes(8);
        }).rfind("join.spec.max_nodes: is 8, must be 9", 0) == 0);
  CHECK(spoilt([](v1::AgentMessage& m) {
          m.mutable_join()->mutable_node()->set_slots(0);
        }).rfind("join.node.slots:", 0) == 0);
  CHECK(spoilt([](v1::AgentMessage& m) { m.mutable_join()->mutable_node()->set_name("a\nb"); }) ==
        "join.node.name: has a control character");
  CHECK(spoilt([](v1::AgentMessage& m) {
          m.mutable_join()->mutable_node()->set_name(std::string(513, 'x'));
        }) == "join.node.name: longer than 512 bytes");
  CHECK(spoilt([](v1::AgentMessage& m) {
          m.mutable_join()->mutable_spec()->mutable_policy()->set_heartbeat_ns(-1);
        }).rfind("join.spec.policy.heartbeat_ns:", 0) == 0);
  CHECK(spoilt([](v1::AgentMessage& m) {
          m.mutable_join()->mutable_spec()->mutable_policy()->set_node_timeout_ns(0);
        }) == "join.spec.policy.node_timeout_ns: must be above 0");

  const AgentMessage answer = random.agent_message(agent_index<PrepareAnswer>());
  CHECK(complaint(answer, [](v1::AgentMessage& m) {
          m.mutable_prepare_answer()->set_master_port(65536);
        }).rfind("prepare_answer.master_port: is 65536", 0) == 0);
  const AgentMessage ended = random.agent_message(agent_index<WorkerExited>());
  CHECK(complaint(ended, [](v1::AgentMessage& m) {
          m.mutable_worker_exited()->mutable_status()->clear_kind();
        }) == "worker_exited.status.kind: missing");
  CHECK(complaint(ended, [](v1::AgentMessage& m) {
          m.mutable_worker_exited()->set_stderr_tail(std::string(100000, 'x'));
        }) == "worker_exited.stderr_tail: longer than 8192 bytes");
}

TEST_CASE("an assignment whose ranks do not fit together is refused", "[wire]") {
  RandomMessages random(6);
  ServerMessage message = random.server_message(server_index<Prepare>());
  Assignment& assignment = std::get<Prepare>(message.body).assignment;
  assignment.members = {{"a", 0, 0, 2}, {"b", 1, 2, 2}};
  assignment.world_size = 4;
  assignment.group_rank = 1;
  const auto spoilt = [&](auto spoil) {
    return complaint(
        message, [&](v1::ServerMessage& m) { spoil(*m.mutable_prepare()->mutable_assignment()); });
  };
  CHECK(spoilt([](v1::Assignment&) {}).empty());
  CHECK(spoilt([](v1::Assignment& a) { a.mutable_members(1)->set_first_rank(1); }) ==
        "prepare.assignment.members: ranks overlap or have a gap");
  CHECK(spoilt([](v1::Assignment& a) { a.mutable_members(1)->set_count(3); }) ==
        "prepare.assignment.members: ranks do not add up to world_size");
  CHECK(spoilt([](v1::Assignment& a) { a.mutable_members()->SwapElements(0, 1); }) ==
        "prepare.assignment.members: not by group rank");
  CHECK(spoilt([](v1::Assignment& a) { a.set_group_rank(2); }) ==
        "prepare.assignment.group_rank: is no member");
  CHECK(spoilt([](v1::Assignment& a) { a.clear_members(); }) ==
        "prepare.assignment.members: ranks do not add up to world_size");
}

TEST_CASE("text for people is cut where a name is refused", "[wire]") {
  RandomMessages random(7);
  AgentMessage message = random.agent_message(agent_index<WorkerExited>());
  WorkerExited& ended = std::get<WorkerExited>(message.body);
  ended.stderr_tail = std::string(50000, 'a') + "the last line";
  ended.error_file = std::string(100000, 'b');
  const auto read = wire::from_wire(wire::to_wire(message));
  REQUIRE(read.ok());
  const auto& back = std::get<WorkerExited>(std::get<AgentMessage>(*read).body);
  CHECK(back.stderr_tail.size() == wire::kMaxStderrTailBytes);
  CHECK(back.stderr_tail.substr(back.stderr_tail.size() - 13) == "the last line");
  CHECK(back.error_file.size() == wire::kMaxErrorFileBytes);
}

TEST_CASE("the largest outcome fits one message", "[wire]") {
  Outcome outcome;
  Failure failure;
  failure.node = std::string(wire::kMaxNameBytes, 'n');
  failure.detail = std::string(wire::kMaxTextBytes, 'd');
  failure.stderr_tail = std::string(wire::kMaxStderrTailBytes, 's');
  failure.error_file = std::string(wire::kMaxErrorFileBytes, 'e');
  outcome.first_cause = failure;
  outcome.victims.assign(wire::kMaxVictims + 100, failure);
  const v1::ServerMessage message = wire::to_wire(ServerMessage{{}, OutcomeNotice{outcome}});
  CHECK(message.ByteSizeLong() < static_cast<std::size_t>(wire::kMaxMessageBytes));
  REQUIRE(wire::from_wire(message).ok());
}

}  // namespace muster
