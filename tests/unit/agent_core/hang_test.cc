// SPDX-License-Identifier: Apache-2.0
//
// --hang-timeout and --silence-timeout.
#include <algorithm>

#include "proto/base/failure.h"
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {
namespace {

AgentConfig watching(std::uint32_t slots = 2) {
  AgentConfig config = test_config(slots);
  config.hang_timeout = 2s;
  config.hang_first = 20s;
  return config;
}

// A generation runs; progress is as the shell would sample it, before each tick.
struct Watched {
  explicit Watched(const AgentConfig& config = watching()) : rig(config) {
    rig.join();
    rig.run_generation(0, 1);
    steps.resize(config.node.slots);
  }

  // `rank` makes a step every 100 ms while the time passes.
  void pass(Duration duration, const std::vector<std::uint32_t>& working = {}) {
    const Instant end = rig.now + duration;
    while (rig.now < end && !asked) {
      for (const std::uint32_t rank : working)
        steps[rank] = steps[rank].value_or(0) + 1;
      report();
      for (const Action& action : rig.pass(100ms)) {
        if (const auto* order = std::get_if<CaptureStacks>(&action)) asked = *order;
        const auto* send = std::get_if<Send>(&action);
        if (send == nullptr) continue;
        if (const auto* beat = std::get_if<Heartbeat>(&send->message.body)) {
          beats.push_back(beat->sequence);
        }
      }
      for (const std::uint64_t beat : std::exchange(beats, {}))
        rig.said(HeartbeatAck{beat});
    }
  }
  void report() {
    ProgressSampled sampled;
    for (std::uint32_t rank = 0; rank < steps.size(); ++rank) {
      if (steps[rank]) sampled.progress.push_back({rank, *steps[rank], std::nullopt, 0s});
    }
    sampled.heard = heard;
    rig.step(sampled);
  }
  void captured(const std::vector<std::uint32_t>& stopped = {}) {
    REQUIRE(asked);
    StacksCaptured answer;
    answer.number = asked->number;
    for (const auto& worker : asked->workers) {
      const bool is = std::count(stopped.begin(), stopped.end(), worker.local_rank) > 0;
      answer.workers.push_back({worker.local_rank, "/log/rank-" + std::to_string(worker.rank), is});
    }
    rig.step(answer);
  }
  // Local ranks that were killed in the last step, for a hang.
  std::vector<std::uint32_t> killed() {
    std::vector<std::uint32_t> ranks;
    for (const Action& action : rig.last) {
      const auto* order = std::get_if<SignalWorker>(&action);
      if (order != nullptr && order->signal == 9 && !order->stops) {
        CHECK(order->scope == SignalScope::kDescendants);
        ranks.push_back(order->local_rank);
      }
    }
    return ranks;
  }
  WorkerExited report_of(std::uint32_t local_rank) {
    rig.ended(local_rank, {ExitStatus::Kind::kSignaled, 9, false, ""});
    return rig.sent<WorkerExited>().at(0);
  }

  Rig rig;
  std::vector<std::optional<std::uint64_t>> steps;
  std::uint64_t heard = 0;
  std::vector<std::uint64_t> beats;  // not answered yet
  std::optional<CaptureStacks> asked;
};

using Ranks = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a hang is looked into once, however long its end takes") {
  Watched world;
  world.pass(2s, {0, 1});
  world.pass(5s, {0});
  REQUIRE(world.asked);
  world.captured();
  CHECK(world.killed() == Ranks{1});
  world.asked.reset();
  world.pass(5s, {0});
  CHECK_FALSE(world.asked);
}

TEST_CASE("a worker that makes no progress is killed, after its stacks and the others' are taken") {
  Watched world;
  world.pass(10s, {0, 1});
  CHECK_FALSE(world.asked);
  world.pass(1500ms, {0});
  CHECK_FALSE(world.asked);
  world.pass(2s, {0});
  REQUIRE(world.asked);
  CHECK(world.asked->workers.size() == 2);
  CHECK(world.killed().empty());
  world.captured();
  CHECK(world.killed() == Ranks{1});
  const WorkerExited report = world.report_of(1);
  REQUIRE(report.hang);
  CHECK_FALSE(report.hang->ambiguous);
  CHECK_FALSE(report.hang->stopped);
  CHECK(report.hang->step == 100U);
  CHECK_FALSE(report.torn_down);
  CHECK(report.stacks == "/log/rank-1");
  CHECK(report.status.detail == "no progress for 2s, at step 100");
  CHECK(to_failure(report, "a").kind == FailureKind::kHang);
  CHECK(world.rig.signals(0) == Signals{"15 leader"});  // the others are stopped
  CHECK(world.rig.has<NoteFirstCause>());
}

TEST_CASE("before the first report there is more time") {
  Watched world;
  world.pass(19s, {0});
  CHECK_FALSE(world.asked);
  world.pass(2s, {0});
  REQUIRE(world.asked);
  world.captured();
  CHECK(world.killed() == Ranks{1});
  CHECK(world.report_of(1).status.detail == "no progress reported in 20s");
}

TEST_CASE("of ranks that wait for each other the stopped one is to blame, else nobody can tell") {
  Watched world;
  world.pass(1s, {0, 1});
  world.pass(3s);
  SECTION("stopped") {
    world.captured({1});
    CHECK(world.killed() == Ranks{1});
    const WorkerExited report = world.report_of(1);
    CHECK(report.hang->stopped);
    CHECK_FALSE(report.hang->ambiguous);
    CHECK(report.status.detail.ends_with(", its process is stopped (state T)"));
  }
  SECTION("equal") {
    world.captured();
    CHECK(world.killed() == Ranks{0});
    const WorkerExited report = world.report_of(0);
    CHECK(report.hang->ambiguous);
    CHECK(to_failure(report, "a").ambiguous);
    CHECK(report.status.detail.ends_with("; others stand where it does"));
  }
  SECTION("no answer") {
    world.asked.reset();
    world.pass(11s);
    CHECK_FALSE(world.asked);
    world.rig.pass(2s);
    CHECK(world.rig.signals(0) == Signals{"9 descendants"});
    CHECK(world.report_of(0).stacks.empty());
  }
}

TEST_CASE("what ends or is stopped meanwhile is no hang") {
  Watched world;
  world.pass(1s, {0, 1});
  world.pass(3s, {0});
  REQUIRE(world.asked);
  SECTION("it fails by itself") {
    world.rig.ended(1, {ExitStatus::Kind::kExited, 3, false, ""});
    const WorkerExited report = world.rig.sent<WorkerExited>().at(0);
    CHECK_FALSE(report.hang);
    world.captured();
    CHECK(world.killed().empty());
  }
  SECTION("the node is told to stop") {
    world.rig.step(SignalReceived{15});
    world.captured();
    CHECK(world.killed().empty());
  }
  SECTION("an operator stops the generation") {
    world.rig.said(StopOrder{StopMode::kStop, true, "asked to"}, 0);
    CHECK(world.rig.signals(1).size() <= 1);
    world.captured();
    CHECK(world.killed().empty());
  }
  SECTION("the other node's hang was told first: ours is told too, then all are stopped") {
    world.rig.said(StopOrder{StopMode::kStop, false, "rank 2 hangs"}, 0);
    CHECK_FALSE(world.rig.has<SignalWorker>());
    world.captured({1});
    CHECK(world.killed() == Ranks{1});
    CHECK(world.rig.signals(0) == Signals{"15 leader"});
    CHECK(world.report_of(1).hang);
  }
}

TEST_CASE("time in which nothing ran does not count") {
  Watched world;
  world.pass(1s, {0, 1});
  SECTION("the node stood still") {
    world.rig.now = world.rig.now + 60s;
    for (int i = 0; i < 5; ++i) {
      world.report();
      world.rig.step(Tick{});
      CHECK_FALSE(world.rig.has<CaptureStacks>());
    }
  }
  SECTION("it is suspended") {
    world.rig.step(SignalReceived{20});
    world.pass(60s);
    CHECK_FALSE(world.asked);
    world.rig.step(SignalReceived{18});
    world.pass(500ms);
    CHECK_FALSE(world.asked);
  }
}

TEST_CASE("nothing is written by any worker of the node") {
  AgentConfig config = test_config();
  config.silence_timeout = 2s;
  Watched world(config);
  for (int i = 0; i < 20; ++i) {
    ++world.heard;
    world.pass(1s);
  }
  CHECK_FALSE(world.asked);
  world.pass(4s);
  REQUIRE(world.asked);
  world.captured();
  CHECK(world.killed() == Ranks{0});
  const WorkerExited report = world.report_of(0);
  CHECK(report.hang->ambiguous);
  CHECK(report.status.detail.starts_with("no output for 2s"));
}

TEST_CASE("a node of one worker knows whom to blame") {
  AgentConfig config = test_config(1);
  config.silence_timeout = 2s;
  Watched world(config);
  world.pass(4s);
  world.captured();
  CHECK_FALSE(world.report_of(0).hang->ambiguous);
}

}  // namespace muster::agent
