// SPDX-License-Identifier: Apache-2.0
//
// A journal that is older, damaged or made up. Its rows are bytes with a checksum beside them;
// they come from the input as they are, or from a run of the machine (server_world.h), cut or
// with fields changed, and then mostly with a checksum that is right, to get behind it. Proves:
//   1. whatever the rows hold, they are refused in words or give records that are written and
//      read again without loss;
//   2. a run that passes check_run() is safe to go on from: the machine takes it, serves its
//      deadlines and the agents that come back, and what it then writes passes as well.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "launcher/rendezvous/shell/record_wire.h"
#include "tests/fuzz/bend.h"
#include "tests/fuzz/server_judge.h"
#include "tests/fuzz/server_world.h"

namespace muster::fuzz {
namespace {

using namespace rendezvous;

constexpr int kMostTicks = 400;

// A row as it may be found: its message with some fields bent, its bytes with some of them gone,
// a checksum that fits or does not.
template <class Message>
std::pair<std::string, std::int64_t> row_of(Message message, Input& input) {
  bend(message, input, input.below(4));
  std::string bytes = message.SerializeAsString();
  const std::int64_t sum_before = checksum(bytes);
  if (input.one_in(16) && !bytes.empty()) bytes.resize(input.number(2) % bytes.size());
  if (input.one_in(16) && !bytes.empty()) bytes[input.number(2) % bytes.size()] ^= 1;
  const bool is_whole = checksum(bytes) == sum_before;
  return {bytes, input.one_in(16) || is_whole ? sum_before : checksum(bytes)};
}

void expect_words(const absl::Status& status) {
  expect(!status.message().empty(), "a refusal has words");
}

// The run as its rows give it back; nullopt: refused.
std::optional<RunRecord> damaged(const RunRecord& run, Input& input) {
  RunRecord back;
  v1::JobRecord job;
  write(run.job, run.progress, job);
  const auto [bytes, sum] = row_of(std::move(job), input);
  if (const absl::Status read = read_row(bytes, sum, back.job, back.progress); !read.ok()) {
    expect_words(read);
    return std::nullopt;
  }
  if (run.life && !input.one_in(32)) {
    v1::LifeRecord life;
    write(*run.life, life);
    const auto [row, row_sum] = row_of(std::move(life), input);
    absl::StatusOr<LifeRecord> read = read_life_row(row, row_sum);
    if (!read.ok()) return expect_words(read.status()), std::nullopt;
    back.life = *std::move(read);
  }
  std::map<NodeName, NodeRecord> nodes;  // the key of its row: no name comes twice
  for (const NodeRecord& node : run.nodes) {
    v1::NodeRecord message;
    write(node, message);
    const auto [row, row_sum] = row_of(std::move(message), input);
    absl::StatusOr<NodeRecord> read = read_node_row(row, row_sum);
    if (!read.ok()) return expect_words(read.status()), std::nullopt;
    nodes[read->node] = *std::move(read);
  }
  for (auto& [name, node] : nodes)
    back.nodes.push_back(std::move(node));
  return back;
}

// Somebody of every node comes back, as itself or as nobody the server knows.
void come_back(const RunRecord& run, Input& input, Rendezvous& machine, Instant now) {
  SessionId session = 0;
  for (const NodeRecord& node : run.nodes) {
    if (!node.member || input.one_in(4)) continue;
    Join join{run.job.spec, node.member->facts, Reattach{}};
    join.reattach->run = input.one_in(16) ? "another" : run.job.run;
    join.reattach->incarnation = node.member->incarnation + (input.one_in(16) ? 1 : 0);
    join.reattach->generation = run.job.generation + (input.one_in(8) ? 1 : 0);
    join.reattach->workers_running = input.coin();
    join.reattach->epoch = run.job.epoch + (input.one_in(8) ? 1 : 0);
    AgentMessage message;
    message.envelope = {run.job.spec.job,         run.job.run,  run.job.generation, node.node,
                        node.member->incarnation, run.job.epoch};
    message.body = std::move(join);
    std::ignore = machine.step(AgentSaid{++session, "10.0.0.1", message}, now);
    message.body = StopConfirmed{};
    if (input.coin()) std::ignore = machine.step(AgentSaid{session, "10.0.0.1", message}, now);
    if (input.coin()) std::ignore = machine.step(StreamLost{session}, now);
  }
}

void go_on(const std::vector<RunRecord>& runs, Input& input) {
  Options options;
  options.unix_us_at_origin = 1'800'000'000'000'000 + (input.coin() ? 0 : 3'600'000'000);
  Rendezvous machine(options, Rng(1));
  Instant now{1h};
  std::ignore = machine.step(JournalRead{runs}, now);
  for (const RunRecord& run : runs)
    come_back(run, input, machine, now);
  int ticks = 0;
  for (auto due = machine.next_deadline(); due && ticks < kMostTicks;
       due = machine.next_deadline()) {
    ++ticks;
    now = std::max(now, *due);
    if (now > Instant{std::chrono::hours(24 * 365 * 50)}) break;
    std::ignore = machine.step(Tick{}, now);
  }
}

void raw(Input& input) {
  const std::uint32_t kind = input.below(3);
  const bool fits = input.coin();
  const auto sum = static_cast<std::int64_t>(input.number(8));
  const std::string bytes = input.rest();
  const std::int64_t used = fits ? checksum(bytes) : sum;
  JobRecord job;
  ProgressRecord progress;
  const absl::Status read = kind == 0   ? read_row(bytes, used, job, progress)
                            : kind == 1 ? read_life_row(bytes, used).status()
                                        : read_node_row(bytes, used).status();
  if (!read.ok()) expect_words(read);
  expect(!read.ok() || used == checksum(bytes), "a checksum that is wrong is refused");
}

void from_world(Input& input) {
  ServerWorld world(input);
  for (std::uint32_t acts = input.below(100); acts > 0 && !input.empty(); --acts)
    world.act();
  std::vector<RunRecord> runs;
  for (const RunRecord& run : world.journal()) {
    std::optional<RunRecord> back = damaged(run, input);
    if (!back) return;
    wire::Border border;
    check_run(*back, border);
    if (!border.ok()) return expect_words(border.status());
    expect_readable(*back);
    runs.push_back(std::move(*back));
  }
  go_on(runs, input);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Input input(data, size);
  if (input.one_in(8)) {
    muster::fuzz::raw(input);
  } else {
    muster::fuzz::from_world(input);
  }
  return 0;
}
