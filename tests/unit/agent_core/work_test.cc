// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {

TEST_CASE("workers are announced when the last one is spawned") {
  Rig rig(test_config());
  rig.join();
  rig.form(0);
  rig.now = rig.now + 3ms;
  rig.step(WorkerSpawned{0, 100});
  const JobEvent event = rig.only<Emit>().event;
  CHECK(event.rank == 0U);
  CHECK(event.local_rank == 0U);
  CHECK(event.pid == 100);
  CHECK(event.generation == 0);
  CHECK(event.node == "a");
  CHECK(std::get<event::WorkerStarted>(event.body).argv0 == "/bin/train");
  CHECK_FALSE(rig.has<Send>());
  rig.now = rig.now + 2ms;
  rig.step(WorkerSpawned{1, 101});
  const WorkersStarted started = rig.sent<WorkersStarted>().at(0);
  CHECK(started.spawn == 5ms);
  CHECK(started.workers == std::vector<StartedWorker>{{0, 100}, {1, 101}});
  CHECK(rig.phase() == Phase::kRunning);
  CHECK(rig.agent.view().live_local_ranks == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("success is reported at once and stops nobody") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.ended(0, Rig::code(0));
  const WorkerExited report = rig.sent<WorkerExited>().at(0);
  CHECK(report.status.succeeded());
  CHECK_FALSE(report.torn_down);
  CHECK_FALSE(rig.has<SignalWorker>());
  CHECK_FALSE(rig.has<NoteFirstCause>());
  const auto event = std::get<event::WorkerEnded>(rig.only<Emit>().event.body);
  CHECK(event.exit_code == 0);
  CHECK_FALSE(event.signal.has_value());
}

TEST_CASE("a failure: reported first, then the siblings stop, without a stop file") {
  Rig rig(test_config(3));
  rig.join();
  rig.run_generation(0);
  WorkerEnded ended;
  ended.local_rank = 1;
  ended.pid = 101;
  ended.status = Rig::killed(11);
  ended.order = 9;
  ended.run = 2s;
  ended.max_rss_bytes = 1000;
  ended.stderr_tail = "boom";
  ended.error_file = "{}";
  rig.step(ended);
  const WorkerExited report = rig.sent<WorkerExited>().at(0);
  CHECK(report.order == 9);
  CHECK(report.stderr_tail == "boom");
  CHECK(report.error_file == "{}");
  CHECK(report.run == 2s);
  CHECK(report.max_rss_bytes == 1000);
  CHECK_FALSE(report.torn_down);
  CHECK(rig.signals(0) == Signals{"15 leader"});
  CHECK(rig.signals(1) == Signals{"15 descendants"});  // what the failed one left behind
  CHECK(rig.signals(2) == Signals{"15 leader"});
  CHECK_FALSE(rig.has<WriteStopFile>());
  const Failure cause = rig.only<NoteFirstCause>().failure;
  CHECK(cause.rank == 1U);
  CHECK(cause.signal == 11);
  CHECK(cause.stderr_tail == "boom");
  std::size_t send_at = 0;
  std::size_t signal_at = 0;
  for (std::size_t i = 0; i < rig.last.size(); ++i) {
    if (std::holds_alternative<Send>(rig.last[i])) send_at = i;
    if (std::holds_alternative<SignalWorker>(rig.last[i]) && signal_at == 0) signal_at = i;
  }
  CHECK(send_at < signal_at);
  rig.ended(0, Rig::code(1));
  CHECK(rig.sent<WorkerExited>().at(0).torn_down);
  CHECK_FALSE(rig.has<NoteFirstCause>());
  CHECK(rig.sent<StopConfirmed>().empty());
}

TEST_CASE("the own confirmation waits for the order; the order waits for the last worker") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.ended(0, Rig::code(1));
  rig.gone(0);
  rig.ended(1, Rig::killed(15));
  rig.gone(1);
  CHECK_FALSE(rig.has<Send>());
  CHECK(rig.phase() == Phase::kIdle);
  rig.said(StopOrder{}, 0);
  CHECK(rig.sent<StopConfirmed>().size() == 1);
  CHECK_FALSE(rig.has<SignalWorker>());
}

TEST_CASE("an exec that failed is a failure before anything was announced") {
  Rig rig(test_config());
  rig.join();
  rig.form(0);
  rig.step(WorkerSpawned{0, 100});
  WorkerEnded ended;
  ended.local_rank = 1;
  ended.status = ExitStatus{ExitStatus::Kind::kExecFailed, 2, false, "no such file"};
  rig.step(ended);
  const WorkerExited report = rig.sent<WorkerExited>().at(0);
  CHECK(report.pid == 0);
  CHECK(report.status.kind == ExitStatus::Kind::kExecFailed);
  CHECK_FALSE(rig.has<Emit>());  // it never was a worker
  CHECK(rig.signals(0) == Signals{"15 leader"});
  CHECK(rig.signals(1).empty());  // no process, hence no group to signal
  CHECK(rig.only<NoteFirstCause>().failure.exit_code == 127);
  rig.said(StopOrder{}, 0);
  rig.ended(0, Rig::killed(15));
  rig.gone(0);
  CHECK(rig.sent<StopConfirmed>().empty());  // a late word about it must not meet its successor
  rig.gone(1);
  CHECK(rig.sent<StopConfirmed>().size() == 1);
}

TEST_CASE("an order after a failure spares who fails by itself, and nobody else's does") {
  const auto spared = [](Rig& rig) { return rig.all<SignalWorker>().at(0).spares_failing; };
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  SECTION("the server's, for a failure elsewhere") {
    rig.said(StopOrder{}, 0);
    CHECK(spared(rig) == 1s);
    WorkerEnded ended;
    ended.local_rank = 0;
    ended.pid = 100;
    ended.status = Rig::code(1);
    ended.unasked = true;
    ended.failing = 400ms;
    ended.spoke = 300ms;
    rig.step(ended);
    const WorkerExited report = rig.sent<WorkerExited>().at(0);
    CHECK_FALSE(report.torn_down);
    CHECK(report.age == 400ms);
    CHECK(report.spoke == 300ms);
  }
  SECTION("one for a failure here") {
    rig.ended(0, Rig::code(1));
    CHECK(spared(rig) == 0s);
  }
  SECTION("a person's") {
    rig.step(SignalReceived{15});
    CHECK(spared(rig) == 0s);
  }
}

TEST_CASE("the stop ladder runs to its end") {
  AgentConfig config = test_config();
  config.spec.policy.stop_grace = 4s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  rig.said(StopOrder{}, 0);
  rig.pass(3900ms);
  CHECK_FALSE(rig.has<SignalWorker>());
  rig.pass(100ms);
  CHECK(rig.signals(0) == kKilled);
  CHECK(rig.signals(1) == kKilled);
}

TEST_CASE("configured stop signal and scope reach the workers") {
  AgentConfig config = test_config();
  config.stop_signal = 10;
  config.stop_scope = SignalScope::kGroup;
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  rig.said(StopOrder{}, 0);
  CHECK(rig.signals(0) == Signals{"10 group"});
  rig.ended(0, Rig::killed(10));
  CHECK(rig.signals(0) == Signals{"10 beyond"});  // the group had it already
}

TEST_CASE("descendants of a worker that ended well may run on for a grace") {
  AgentConfig config = test_config();
  config.spec.policy.stop_grace = 5s;
  config.spec.policy.node_timeout = 1000s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  rig.ended(0, Rig::code(0));
  rig.pass(900ms);
  CHECK_FALSE(rig.says("run on"));
  rig.pass(200ms);
  CHECK(rig.only<SayLingering>().grace == 5s);
  rig.pass(3800ms);
  CHECK_FALSE(rig.has<SignalWorker>());
  rig.pass(200ms);
  CHECK(rig.signals(0) == Signals{"15 descendants"});
  CHECK(rig.signals(1).empty());
  rig.pass(5s);
  CHECK(rig.signals(0) == kKilled);
}

TEST_CASE("an unkillable worker makes the node unfit: leave, kill the rest, 77") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.said(StopOrder{}, 0);
  rig.step(WorkerUnkillable{0, 4242, "D"});
  CHECK(rig.signals(1) == kKilled);
  REQUIRE(rig.sent<Leave>().size() == 1);
  CHECK(rig.sent<Leave>()[0].signal == 0);
  CHECK(rig.sent<StopConfirmed>().empty());
  rig.ended(1, Rig::killed(9));
  rig.gone(1);
  CHECK(rig.sent<StopConfirmed>().empty());  // it is not gone, and never said to be
  rig.answer();
  const Finish finish = rig.only<Finish>();
  CHECK(finish.exit_code == 77);
  CHECK(finish.exit_class == ExitClass::kUnfit);
  CHECK(finish.text.find("4242") != std::string::npos);
  CHECK(finish.text.find("state D") != std::string::npos);
}

TEST_CASE("chaos fired is told to the server") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.step(FaultFired{2, 1});
  REQUIRE(rig.sent<ChaosFired>().size() == 1);
  CHECK(rig.sent<ChaosFired>()[0].fault_index == 2);
  CHECK(rig.sent<ChaosFired>()[0].rank == 1U);
}

}  // namespace muster::agent
