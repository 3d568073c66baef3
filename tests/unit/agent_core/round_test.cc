// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {

TEST_CASE("group rank 0 answers with the held port and starts only on Commit") {
  Rig rig(test_config());
  rig.join();
  rig.run = "r1";
  rig.said(Prepare{0, rig.assignment(0)}, 0);
  const HoldMasterPort hold = rig.only<HoldMasterPort>();
  CHECK(hold.low == 20000);
  CHECK(hold.high == 28999);
  CHECK_FALSE(rig.has<Send>());
  rig.step(MasterPortHeld{0, 20500});
  const PrepareAnswer answer = rig.sent<PrepareAnswer>().at(0);
  CHECK(answer.accepted);
  CHECK(answer.master_port == 20500);
  CHECK_FALSE(rig.has<StartWorkers>());
  CHECK(rig.phase() == Phase::kPrepared);
  rig.said(Commit{0, 20500}, 0);
  const StartWorkers start = rig.only<StartWorkers>();
  CHECK(start.generation == 0);
  CHECK(start.run == "r1");
  REQUIRE(start.workers.size() == 2);
  CHECK(start.workers[1].environment.at("MASTER_PORT") == "20500");
  CHECK(start.workers[1].argv.back() == "1");
  CHECK(rig.phase() == Phase::kStarting);
  CHECK_FALSE(rig.has<ReleaseMasterPort>());
}

TEST_CASE("a port that is not to be held is let go of before the workers start") {
  AgentConfig config = test_config();
  config.master_port_hold = false;
  Rig rig(config);
  rig.join();
  rig.said(Prepare{0, rig.assignment(0)}, 0);
  rig.step(MasterPortHeld{0, 20500});
  CHECK_FALSE(rig.has<ReleaseMasterPort>());
  rig.said(Commit{0, 20500}, 0);
  REQUIRE(rig.last.size() >= 2);
  CHECK(std::holds_alternative<ReleaseMasterPort>(rig.last[0]));
  CHECK(rig.has<StartWorkers>());
}

TEST_CASE("other group ranks answer at once, without a port") {
  Rig rig(test_config(2, 2));
  rig.join();
  Assignment assignment = rig.assignment(0, 2);
  assignment.group_rank = 1;
  rig.said(Prepare{0, assignment}, 0);
  CHECK_FALSE(rig.has<HoldMasterPort>());
  CHECK(rig.sent<PrepareAnswer>().at(0).accepted);
  rig.said(Commit{0, 20001}, 0);
  CHECK(rig.only<StartWorkers>().workers[0].rank == 2);
}

TEST_CASE("no free master port is an answer, not an accident") {
  Rig rig(test_config());
  rig.join();
  rig.said(Prepare{0, rig.assignment(0)}, 0);
  rig.step(MasterPortFailed{0, "20000-20000 is taken"});
  const PrepareAnswer answer = rig.sent<PrepareAnswer>().at(0);
  CHECK_FALSE(answer.accepted);
  CHECK(answer.reason == "20000-20000 is taken");
  rig.said(Commit{0, 1}, 0);
  CHECK_FALSE(rig.has<StartWorkers>());
}

TEST_CASE("a newer attempt replaces the older, whose port is let go") {
  Rig rig(test_config());
  rig.join();
  rig.said(Prepare{0, rig.assignment(0)}, 0);
  rig.said(Prepare{1, rig.assignment(0)}, 0);
  CHECK(std::holds_alternative<ReleaseMasterPort>(rig.last.at(0)));
  CHECK(rig.has<HoldMasterPort>());
  rig.step(MasterPortHeld{0, 20001});  // of the one let go
  CHECK_FALSE(rig.has<Send>());
  rig.step(MasterPortHeld{1, 20002});
  CHECK(rig.sent<PrepareAnswer>().at(0).attempt == 1);
  rig.said(Commit{0, 20001}, 0);
  CHECK(rig.says("stale Commit"));
  rig.said(Prepare{0, rig.assignment(0)}, 0);
  CHECK(rig.says("stale Prepare"));
  rig.said(Commit{1, 20002}, 0);
  CHECK(rig.has<StartWorkers>());
}

TEST_CASE("an assignment without workers for this node is refused") {
  Rig rig(test_config());
  rig.join();
  Assignment bad = rig.assignment(0);
  SECTION("no such group rank") {
    bad.group_rank = 9;
  }
  SECTION("no workers") {
    bad.members[0].count = 0;
  }
  SECTION("beyond the world") {
    bad.members[0].first_rank = 1;
  }
  SECTION("overflow") {
    bad.members[0].count = 0xffffffffU;
  }
  rig.said(Prepare{0, bad}, 0);
  CHECK_FALSE(rig.sent<PrepareAnswer>().at(0).accepted);
  CHECK_FALSE(rig.has<HoldMasterPort>());
}

TEST_CASE("a new generation never starts beside an old one") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.said(Prepare{0, rig.assignment(1)}, 1);
  const PrepareAnswer answer = rig.sent<PrepareAnswer>().at(0);
  CHECK_FALSE(answer.accepted);
  CHECK(answer.reason.find("generation 0 still run") != std::string::npos);
  CHECK(rig.signals(0) == Signals{"15 leader"});  // and the way is cleared
  rig.said(Commit{0, 20001}, 1);
  CHECK_FALSE(rig.has<StartWorkers>());
}

TEST_CASE("a Commit that lay in a sleeping agent's socket waits for an answer") {
  Rig rig(test_config());
  rig.join();
  rig.run = "r1";
  rig.said(Prepare{0, rig.assignment(0)}, 0);
  rig.step(MasterPortHeld{0, 20001});
  rig.now = rig.now + 11s;  // asleep for longer than the node time-out
  rig.said(Commit{0, 20001}, 0);
  CHECK_FALSE(rig.has<StartWorkers>());
  REQUIRE(rig.sent<Heartbeat>().size() == 1);
  const std::uint64_t beat = rig.sent<Heartbeat>()[0].sequence;
  SECTION("the server still counts on this node") {
    rig.said(HeartbeatAck{beat});
    CHECK(rig.has<StartWorkers>());
  }
  SECTION("it does not") {
    rig.said(Evicted{"lost"});
    CHECK_FALSE(rig.has<StartWorkers>());
    CHECK(rig.only<Finish>().exit_code == 77);
  }
  SECTION("it took the generation back") {
    rig.said(StopOrder{}, 0);
    CHECK(rig.sent<StopConfirmed>().size() == 1);
    rig.said(HeartbeatAck{beat});
    CHECK_FALSE(rig.has<StartWorkers>());
  }
  SECTION("it knows the node under a new incarnation only") {
    rig.step(LinkDown{"closed"});
    rig.step(LinkUp{});
    rig.incarnation = 8;
    rig.accept();
    CHECK(rig.has<ReleaseMasterPort>());
    rig.said(Commit{0, 20001}, 0);
    rig.said(HeartbeatAck{beat});
    CHECK_FALSE(rig.has<StartWorkers>());
  }
  SECTION("it commits again on a new stream") {
    rig.step(LinkDown{"closed"});
    rig.step(LinkUp{});
    rig.accept();
    CHECK_FALSE(rig.has<StartWorkers>());
    rig.said(Commit{0, 20001}, 0);
    CHECK(rig.has<StartWorkers>());
  }
}

TEST_CASE("a restart: stop order, confirmation, next generation with a new port") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.said(StopOrder{StopMode::kStop, false, "rank 3 failed"}, 0);
  CHECK(rig.signals(0) == Signals{"15 leader"});
  CHECK(rig.signals(1) == Signals{"15 leader"});
  CHECK_FALSE(rig.has<WriteStopFile>());
  CHECK(rig.phase() == Phase::kStopping);
  rig.ended(0, Rig::killed(15));
  rig.gone(0);
  rig.ended(1, Rig::code(0));  // a tidy worker: torn down all the same
  CHECK(rig.sent<WorkerExited>().at(0).torn_down);
  CHECK(rig.sent<StopConfirmed>().empty());
  rig.gone(1);
  CHECK(rig.sent<StopConfirmed>().size() == 1);
  CHECK(rig.has<ReleaseMasterPort>());
  CHECK(rig.phase() == Phase::kIdle);
  Assignment next = rig.assignment(1);
  next.restarts_used = 1;
  rig.form(next);
  CHECK(rig.only<StartWorkers>().workers[0].environment.at("TORCHELASTIC_RESTART_COUNT") == "1");
  CHECK(rig.agent.view().restarts_used == 1);
}

TEST_CASE("every stop order is answered once, whatever its generation") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(2);
  rig.said(StopOrder{}, 1);  // older: nothing of it runs here
  CHECK(rig.sent<StopConfirmed>().size() == 1);
  CHECK_FALSE(rig.has<SignalWorker>());
  rig.said(StopOrder{}, 2);
  rig.said(StopOrder{}, 2);
  CHECK(rig.sent<StopConfirmed>().empty());
  for (std::uint32_t i = 0; i < 2; ++i)
    rig.ended(i, Rig::killed(15));
  rig.gone(0);
  rig.gone(1);
  CHECK(rig.sent<StopConfirmed>().size() == 2);
  rig.said(StopOrder{}, 2);  // asked again, answered again
  CHECK(rig.sent<StopConfirmed>().size() == 1);
}

TEST_CASE("a stop order for a generation only prepared takes the preparation back") {
  Rig rig(test_config());
  rig.join();
  rig.said(Prepare{0, rig.assignment(0)}, 0);
  rig.step(MasterPortHeld{0, 20001});
  rig.said(StopOrder{}, 0);
  CHECK(rig.has<ReleaseMasterPort>());
  CHECK(rig.sent<StopConfirmed>().size() == 1);
  rig.said(Commit{0, 20001}, 0);
  CHECK_FALSE(rig.has<StartWorkers>());
}

TEST_CASE("a planned stop: file first, the signal waits only for workers that report") {
  AgentConfig config = test_config();
  config.spec.policy.stop_grace = 20s;
  config.spec.policy.node_timeout = 1000s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  rig.step(ProgressSampled{{{1, 4, std::nullopt, 0s}}});
  rig.said(StopOrder{StopMode::kStop, true, "muster stop"}, 0);
  CHECK(rig.all<WriteStopFile>().size() == 2);
  CHECK(std::holds_alternative<WriteStopFile>(rig.last.at(0)));
  CHECK(rig.signals(0) == Signals{"15 leader"});
  CHECK(rig.signals(1).empty());
  rig.pass(10s);
  CHECK(rig.signals(1) == Signals{"15 leader"});
  rig.pass(10s);
  CHECK(rig.signals(0) == kKilled);
  CHECK(rig.signals(1) == kKilled);
}

TEST_CASE("a worker that obeys the stop file is torn down only if we signalled it") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.step(ProgressSampled{{{0, 4, std::nullopt, 0s}, {1, 4, std::nullopt, 0s}}});
  rig.said(StopOrder{StopMode::kStop, true, "muster stop"}, 0);
  CHECK_FALSE(rig.has<SignalWorker>());
  rig.ended(0, Rig::code(143));
  CHECK(rig.sent<WorkerExited>().at(0).torn_down);  // the file asked for it
  CHECK_FALSE(rig.has<NoteFirstCause>());
}

TEST_CASE("the fault clock starts with the generation, and only for the one that runs") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(1);
  JobEvent event;
  event.generation = 0;
  event.body = event::GenerationRunning{};
  rig.said(JobEventNotice{event, 0s}, 1);
  CHECK_FALSE(rig.has<StartFaultClock>());
  CHECK(rig.has<Emit>());
  event.generation = 1;
  rig.said(JobEventNotice{event, 0s}, 1);
  CHECK(rig.only<StartFaultClock>().generation == 1);
  // Told again on a new stream it is neither written nor started twice.
  rig.said(JobEventNotice{event, 2s}, 1);
  CHECK_FALSE(rig.has<StartFaultClock>());
  CHECK_FALSE(rig.has<Emit>());
}

TEST_CASE("a generation_running that comes late starts the fault clock where it should be") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(1);
  JobEvent event;
  event.generation = 1;
  event.body = event::GenerationRunning{};
  rig.said(JobEventNotice{event, 300ms}, 1);
  CHECK(rig.only<StartFaultClock>().elapsed == 300ms);
}

TEST_CASE("job events go to the file; recovery also to the console") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(1);
  JobEvent event;
  event.generation = 1;
  event.body = event::Recovered{0s, 20ms, 10ms, 180ms, 210ms, std::nullopt};
  rig.said(JobEventNotice{event, 0s}, 1);
  CHECK(rig.only<Emit>().event == event);
  CHECK(rig.only<Emit>().run == "r1");
  CHECK(rig.only<Say>().severity == Severity::kWarning);
  CHECK(rig.says("recovered in 0.21 s"));
}

TEST_CASE("one line about OMP_NUM_THREADS, once") {
  AgentConfig config = test_config();
  config.environment.erase("OMP_NUM_THREADS");
  Rig rig(config);
  rig.join();
  rig.form(0);
  CHECK(rig.says("OMP_NUM_THREADS is not set: 1 for each of the 2 workers"));
  rig.spawn_all();
  rig.said(StopOrder{}, 0);
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::killed(15));
    rig.gone(i);
  }
  rig.form(1);
  CHECK(rig.has<StartWorkers>());
  CHECK_FALSE(rig.has<Say>());
}

TEST_CASE("agent faults travel with the start, apart from the workers'") {
  Rig rig(test_config());
  rig.join();
  Assignment assignment = rig.assignment(0);
  ArmedFault kill_agent;
  kill_agent.fault.action = FaultAction::kKillAgent;
  ArmedFault kill_rank;
  kill_rank.rank = 1;
  assignment.faults = {kill_agent, kill_rank};
  rig.form(assignment);
  const StartWorkers start = rig.only<StartWorkers>();
  CHECK(start.agent_faults.size() == 1);
  CHECK(start.workers[0].faults.empty());
  CHECK(start.workers[1].faults.size() == 1);
}

}  // namespace muster::agent
