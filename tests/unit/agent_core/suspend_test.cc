// SPDX-License-Identifier: Apache-2.0
//
// SIGTSTP (20), SIGSTOP (19), SIGCONT (18).
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {
namespace {

const Signals kStopped{"19 descendants"};
const Signals kWoken{"18 descendants"};

AgentConfig config() {
  AgentConfig config = test_config(2, 2);
  config.forward_signals = {10, 18};
  return config;
}

}  // namespace

TEST_CASE("suspended: workers stop, the server is told, the guardian stops last") {
  Rig rig(config());
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{20});
  CHECK(rig.signals(0) == kStopped);
  CHECK(rig.signals(1) == kStopped);
  CHECK(rig.sent<Heartbeat>().at(0).suspended);
  CHECK(std::holds_alternative<SuspendGuardian>(rig.last.back()));
  CHECK(rig.step(SignalReceived{20}).empty());  // it is already

  rig.pass(1s);  // its heartbeats go on, and say so
  CHECK(rig.sent<Heartbeat>().at(0).suspended);

  rig.step(SignalReceived{18});
  CHECK(rig.signals(0) == Signals{"18 descendants", "18 leader"});  // SIGCONT is passed on too
  CHECK_FALSE(rig.sent<Heartbeat>().at(0).suspended);
  CHECK(rig.has<ResumeGuardian>());
  rig.step(SignalReceived{18});
  CHECK(rig.signals(0) == Signals{"18 leader"});
  CHECK_FALSE(rig.has<ResumeGuardian>());
}

TEST_CASE("SIGCONT that is not passed on still resumes") {
  AgentConfig none = config();
  none.forward_signals = {};
  Rig rig(none);
  rig.join();
  rig.run_generation(0, 2);
  CHECK(rig.step(SignalReceived{18}).empty());
  rig.step(SignalReceived{20});
  rig.step(SignalReceived{18});
  CHECK(rig.signals(0) == kWoken);
}

TEST_CASE("suspended before anything runs: what starts is stopped") {
  Rig rig(config());
  rig.join();
  rig.step(SignalReceived{20});
  CHECK(rig.has<SuspendGuardian>());
  CHECK_FALSE(rig.has<SignalWorker>());
  rig.form(0, 2);
  rig.step(WorkerSpawned{0, 100});
  CHECK(rig.signals(0) == kStopped);
  rig.step(WorkerSpawned{1, 101});
  CHECK(rig.signals(1) == kStopped);
}

TEST_CASE("who is told to end is woken, and not stopped again") {
  Rig rig(config());
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{20});
  SECTION("by an order of the server") {
    rig.said(StopOrder{}, 0);
    CHECK(rig.signals(0) == Signals{"15 leader", "18 descendants"});
    CHECK(rig.signals(1) == Signals{"15 leader", "18 descendants"});
    CHECK(rig.step(SignalReceived{20}).empty());
    rig.step(SignalReceived{18});
    CHECK(rig.signals(0) == Signals{"18 leader"});
  }
  SECTION("by a planned order: it reads its stop file first") {
    rig.step(ProgressSampled{{{0, 4, std::nullopt, 0s}}});
    rig.said(StopOrder{StopMode::kStop, true, ""}, 0);
    CHECK(rig.signals(0) == kWoken);
    CHECK(rig.signals(1) == Signals{"15 leader", "18 descendants"});
  }
  SECTION("by a failure of the other") {
    rig.ended(0, Rig::code(3));
    CHECK(rig.signals(1) == Signals{"15 leader", "18 descendants"});
  }
  SECTION("by a signal to the agent") {
    rig.step(SignalReceived{15});
    CHECK(rig.signals(0) == Signals{"15 leader", "18 descendants"});
  }
}

TEST_CASE("an agent that ends suspended leaves no stopped guardian") {
  Rig rig(config());
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{20});
  rig.step(SignalReceived{15});
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::killed(15));
    rig.gone(i);
  }
  rig.answer();
  CHECK(rig.has<ResumeGuardian>());
  CHECK(rig.has<Finish>());
  CHECK(rig.step(SignalReceived{20}).empty());
}

TEST_CASE("an agent that is ending is not suspended") {
  Rig rig(config());
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{15});
  CHECK(rig.step(SignalReceived{20}).empty());
}

}  // namespace muster::agent
