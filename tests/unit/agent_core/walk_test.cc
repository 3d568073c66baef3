// SPDX-License-Identifier: Apache-2.0
//
// The machine as an enemy would drive it: any event at any time, messages with any numbers, from a
// server that makes no sense. Processes alone behave as processes do. Whatever comes, the machine
// must keep its four invariants, end once, and then be silent.
#include <array>

#include "proto/base/rng.h"
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {
namespace {

class Walk {
 public:
  explicit Walk(std::uint64_t seed) : rng_(seed), agent_(config(seed)) {}

  void run(int steps) {
    feed(Started{});
    for (int i = 0; i < steps && !finished_; ++i) {
      now_ = now_ + Duration(1ms) * static_cast<Duration::rep>(rng_.below(rng_.below(400) + 1));
      feed(any_event());
      for (auto due = agent_.next_deadline(); due && *due <= now_; due = agent_.next_deadline()) {
        REQUIRE(++ticks_ < 100);
        feed(Tick{});
      }
      ticks_ = 0;
    }
    end();
    CHECK(finished_);
    CHECK(feed(SignalReceived{15}).empty());
    CHECK_FALSE(agent_.next_deadline().has_value());
  }

 private:
  struct Process {
    bool spawned = false;
    bool ended = false;
    bool gone = false;
    Generation generation = 0;
  };

  static AgentConfig config(std::uint64_t seed) {
    AgentConfig config = test_config(2, 2);
    config.seed = seed;
    if (seed % 2 == 0) config.device_patience = 2s;
    config.forward_signals = {10};
    config.spec.policy.stop_grace = 3s;
    config.spec.policy.join_timeout = 60s;
    config.spec.policy.server_grace = 20s;
    return config;
  }

  std::uint64_t below(std::uint64_t bound) { return rng_.below(bound); }

  // Kills what is left, as three signals would: every walk must come to its end.
  void end() {
    for (int i = 0; i < 3; ++i) {
      now_ = now_ + 200ms;
      feed(SignalReceived{15});
    }
    for (int i = 0; i < 20 && !finished_; ++i) {
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        if (processes_[rank].ended || !started_) continue;
        feed(ended_event(rank));
      }
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        if (started_ && !processes_[rank].gone) feed(gone_event(rank));
      }
      now_ = now_ + 1s;
      feed(Tick{});
    }
  }

  WorkerEnded ended_event(std::uint32_t rank) {
    processes_[rank].ended = true;
    WorkerEnded ended;
    ended.local_rank = rank;
    ended.pid = 7;
    ended.order = ++order_;
    ended.status.kind = static_cast<ExitStatus::Kind>(below(processes_[rank].spawned ? 2 : 3));
    ended.status.value = static_cast<int>(below(3) * 7);
    return ended;
  }
  WorkerGone gone_event(std::uint32_t rank) {
    processes_[rank].gone = true;
    return WorkerGone{rank};
  }

  Event any_event() {
    const auto rank = static_cast<std::uint32_t>(below(2));
    Process& process = processes_[rank];
    switch (below(16)) {
      case 0: return LinkUp{};
      case 1: return below(20) == 0 ? Event(LinkDown{"x", below(2) == 0}) : Event(Tick{});
      case 2: return MasterPortHeld{attempt_, 20001};
      case 3: return MasterPortFailed{static_cast<Attempt>(below(8)), "x"};
      case 4: return below(30) == 0 ? Event(SignalReceived{15}) : Event(SignalReceived{10});
      case 5: return FaultFired{1, std::nullopt};
      case 6: return ProgressSampled{{{rank, below(9), std::nullopt, 0s}}};
      case 7:
        if (!started_ || process.spawned || process.ended) return Tick{};
        process.spawned = true;
        return WorkerSpawned{rank, 7};
      case 8:
        if (!started_ || process.ended) return Tick{};
        return ended_event(rank);
      case 9:
        if (!started_ || !process.ended || process.gone) return Tick{};
        return gone_event(rank);
      case 10: return below(60) == 0 ? Event(WorkerUnkillable{rank, 7, "D"}) : Event(Tick{});
      case 11:
        if (below(200) == 0) return GuardianLost{};
        return DevicesFreed{static_cast<std::uint32_t>(below(8)), below(2) == 0 ? "x" : ""};
      default: return any_message();
    }
  }

  Assignment any_assignment() {
    Assignment assignment;
    if (below(4) == 0) ++generation_;
    assignment.generation = generation_ - (below(8) == 0 ? 1 : 0);
    assignment.world_size = static_cast<std::uint32_t>(below(4)) + 2;
    assignment.members = {{"a", 0, 0, 2}, {"b", 1, 2, 2}};
    if (below(8) == 0) assignment.members.clear();
    if (below(8) == 0 && !assignment.members.empty()) assignment.members[0].count = 0xffffffffU;
    assignment.group_rank = static_cast<std::uint32_t>(below(16) == 0 ? 2 : below(2));
    assignment.restarts_used = static_cast<std::uint32_t>(below(3));
    return assignment;
  }

  Event any_message() {
    ServerMessage message;
    message.envelope.job = below(40) == 0 ? "other" : "j";
    message.envelope.run = below(100) == 0 ? "r2" : "r1";
    message.envelope.generation = generation_ - (below(4) == 0 ? 1 : 0);
    message.envelope.incarnation = below(100);
    if (message.envelope.incarnation > 2) message.envelope.incarnation = 1;
    message.envelope.epoch = below(200) == 0 ? 2 : 1;
    switch (below(14)) {
      case 0:
      case 1: {
        JoinAccepted accepted;
        accepted.policy = config(0).spec.policy;
        message.body = accepted;
        break;
      }
      case 2: message.body = Waiting{}; break;
      case 3:
      case 4:
      case 5:
        message.body = Prepare{attempt_ = static_cast<Attempt>(below(2)), any_assignment()};
        break;
      case 6:
      case 7:
      case 8: message.body = Commit{attempt_, 20001}; break;
      case 9: message.body = StopOrder{StopMode(below(2)), below(2) == 0, "x"}; break;
      case 10: message.body = HeartbeatAck{below(40)}; break;
      case 11: message.body = Stale{"x", {}}; break;
      case 12: message.body = rare_message(); break;
      default: {
        JobEvent event;
        event.generation = message.envelope.generation;
        event.body = event::GenerationRunning{};
        message.body = JobEventNotice{event, 0s};
      }
    }
    return ServerSaid{message};
  }

  ServerBody rare_message() {
    switch (below(60)) {
      case 0: return Evicted{"x"};
      case 1: return OutcomeNotice{Outcome{}};
      case 2: return ServerLeaving{"x"};
      case 3: return JoinRefused{};
      case 4:
      case 5: return JoinRefused{JoinRefused::Why::kNotYet, "still leaving", 75};
      default: return HeartbeatAck{below(40)};
    }
  }

  std::vector<Action> feed(const Event& event) {
    std::vector<Action> actions = agent_.step(event, now_);
    for (const Action& action : actions) {
      CHECK_FALSE(finished_);
      if (std::holds_alternative<StartWorkers>(action)) {
        if (started_) {
          for (const Process& process : processes_)
            CHECK(process.gone);
        }
        started_ = true;
        const Generation generation = std::get<StartWorkers>(action).generation;
        for (Process& process : processes_)
          process = {false, false, false, generation};
        REQUIRE(std::get<StartWorkers>(action).workers.size() == 2);
        ++starts;
      } else if (const auto* signal = std::get_if<SignalWorker>(&action)) {
        CHECK(started_);
        CHECK_FALSE(processes_.at(signal->local_rank).gone);
      } else if (const auto* send = std::get_if<Send>(&action)) {
        check_send(send->message);
      } else if (std::holds_alternative<Finish>(action)) {
        finished_ = true;
        ++finishes;
      }
    }
    return actions;
  }

  void check_send(const AgentMessage& message) {
    if (!std::holds_alternative<StopConfirmed>(message.body) || !started_) return;
    ++confirms;
    for (const Process& process : processes_) {
      CHECK((process.gone || process.generation != message.envelope.generation));
    }
  }

  Rng rng_;
  Agent agent_;
  Instant now_;
  std::array<Process, 2> processes_;
  bool started_ = false;
  bool finished_ = false;
  int ticks_ = 0;
  std::uint64_t order_ = 0;
  Generation generation_ = 0;
  Attempt attempt_ = 0;

 public:
  int starts = 0;
  int finishes = 0;
  int confirms = 0;
};

}  // namespace

TEST_CASE("no sequence of events breaks the machine's invariants") {
  int starts = 0;
  int confirms = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    INFO("seed " << seed);
    Walk walk(seed);
    walk.run(400);
    CHECK(walk.finishes == 1);
    starts += walk.starts;
    confirms += walk.confirms;
  }
  CHECK(starts > 200);  // the walks get somewhere
  CHECK(confirms > 200);
}

}  // namespace muster::agent
