// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {

TEST_CASE("the first connection is tried at once, and the Join is the first message") {
  Rig rig(test_config());
  rig.step(Started{});
  CHECK(rig.only<Connect>().delay == 0s);
  rig.step(LinkUp{});
  const Send send = rig.only<Send>();
  const auto& join = std::get<Join>(send.message.body);
  CHECK(join.spec.job == "j");
  CHECK_FALSE(join.reattach.has_value());
  CHECK(send.message.envelope.incarnation == 0);
  rig.accept();
  CHECK(rig.phase() == Phase::kWaiting);
  CHECK(rig.agent.view().connected);
}

TEST_CASE("retries: 50 ms, then doubling to a second, each a little early") {
  Rig rig(test_config());
  rig.step(Started{});
  std::vector<Duration> delays;
  for (int i = 0; i < 9; ++i) {
    rig.step(LinkDown{"refused"});
    delays.push_back(rig.only<Connect>().delay);
    rig.now = rig.now + delays.back();
  }
  CHECK(delays[0] == 50ms);
  Duration plain = 50ms;
  for (std::size_t i = 1; i < delays.size(); ++i) {
    plain = std::min<Duration>(2 * plain, 1s);
    CHECK(delays[i] <= plain);
    CHECK(delays[i] >= plain - plain / 5);
  }
  CHECK(delays[8] != delays[7]);  // jitter
}

TEST_CASE("the join time-out ends in 75 and says what answered") {
  AgentConfig config = test_config();
  config.spec.policy.join_timeout = 30s;
  Rig rig(config);
  rig.step(Started{});
  std::string expected = "no Muster server answers at a:29400";
  SECTION("nothing") {
    rig.step(LinkDown{"refused", true});
  }
  SECTION("a stranger") {
    rig.step(LinkDown{"not gRPC", false});
    expected = "does not speak Muster's protocol";
  }
  Instant end = rig.now + 30s;
  std::vector<Action> finish;
  while (rig.now < end) {
    rig.pass(1s);
    if (rig.has<Finish>()) break;
    if (rig.phase() == Phase::kConnecting && rig.now < end) {
      const bool speaks = expected[0] == 'n';
      rig.last.clear();
      rig.step(LinkDown{"again", speaks});
    }
  }
  const Finish finished = rig.only<Finish>();
  CHECK(rig.now <= end);
  CHECK(finished.exit_code == 75);
  CHECK(finished.exit_class == ExitClass::kJoinTimeout);
  CHECK(finished.text.find(expected) != std::string::npos);
  CHECK(rig.phase() == Phase::kFinished);
  CHECK_FALSE(rig.agent.next_deadline().has_value());
  CHECK(rig.step(LinkUp{}).empty());
}

TEST_CASE("a server that takes the stream and never answers is left and tried again") {
  Rig rig(test_config());
  rig.step(Started{});
  rig.step(LinkUp{});
  rig.pass(10s);
  CHECK(rig.has<Disconnect>());
  CHECK(rig.only<Connect>().delay == 50ms);
  rig.pass(11s);  // and one that is neither refused nor made
  CHECK(rig.has<Disconnect>());
  CHECK(rig.has<Connect>());
}

TEST_CASE("who waits says so every ten seconds") {
  Rig rig(test_config(2, 2));
  rig.step(Started{});
  rig.step(LinkDown{"refused"});
  rig.pass(9s);
  CHECK_FALSE(rig.says("no Muster server"));
  rig.pass(1s);
  CHECK(rig.says("no Muster server answers at a:29400"));
  CHECK(rig.says("giving up in 590s"));
  rig.step(LinkUp{});
  rig.accept();
  Waiting waiting;
  waiting.min_nodes = 2;
  waiting.max_nodes = 2;
  waiting.joined = {"a"};
  waiting.missing = 1;
  rig.said(waiting);
  int lines = 0;
  for (int i = 0; i < 30; ++i) {
    rig.pass(1s);
    lines += rig.says("1 of 2 nodes joined (a), 1 missing") ? 1 : 0;
    for (const auto& beat : rig.sent<Heartbeat>())
      rig.said(HeartbeatAck{beat.sequence});
  }
  CHECK(lines == 3);
}

TEST_CASE("a running agent says nothing about waiting") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  for (int i = 0; i < 40; ++i) {
    rig.pass(1s);
    CHECK_FALSE(rig.has<Say>());
    for (const auto& beat : rig.sent<Heartbeat>())
      rig.said(HeartbeatAck{beat.sequence}, 0);
  }
}

TEST_CASE("heartbeats keep the policy's pace and carry aged progress") {
  AgentConfig config = test_config();
  Rig rig(config);
  rig.step(Started{});
  rig.step(LinkUp{});
  JoinAccepted accepted;
  accepted.policy = config.spec.policy;
  accepted.policy.heartbeat = 3s;  // the server asks for a longer interval
  rig.said(accepted);
  rig.run_generation(0);
  rig.pass(2s);
  CHECK(rig.sent<Heartbeat>().empty());
  rig.step(ProgressSampled{{{1, 17, std::nullopt, 250ms}}});
  rig.pass(1s);
  REQUIRE(rig.sent<Heartbeat>().size() == 1);
  const Heartbeat beat = rig.sent<Heartbeat>()[0];
  REQUIRE(beat.progress.size() == 1);
  CHECK(beat.progress[0].step == 17);
  CHECK(beat.progress[0].age == 1250ms);
}

TEST_CASE("the lease counts from the send time of the last answered heartbeat") {
  AgentConfig config = test_config();
  config.spec.policy.server_grace = 5s;
  config.spec.policy.node_timeout = 100s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  rig.pass(1s);
  const Heartbeat first = rig.sent<Heartbeat>().at(0);
  rig.pass(3s);                            // three more leave, unanswered
  rig.said(HeartbeatAck{first.sequence});  // sent at 1 s, answered at 4 s: the lease ends at 6 s
  rig.pass(1900ms);
  CHECK(rig.signals(0).empty());
  rig.pass(100ms);
  CHECK(rig.signals(0) == kKilled);
  CHECK(rig.signals(1) == kKilled);
  CHECK_FALSE(rig.has<Finish>());
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::killed(9));
    CHECK(rig.sent<WorkerExited>().at(0).torn_down);
    rig.gone(i);
  }
  CHECK(rig.only<Finish>().exit_code == 76);
  CHECK(rig.only<Finish>().exit_class == ExitClass::kServerLost);
}

TEST_CASE("answers to unknown and repeated heartbeats do not move the lease") {
  AgentConfig config = test_config();
  config.spec.policy.server_grace = 5s;
  config.spec.policy.node_timeout = 100s;
  Rig rig(config);
  rig.join();
  rig.pass(1s);
  const std::uint64_t sequence = rig.sent<Heartbeat>().at(0).sequence;
  rig.said(HeartbeatAck{sequence + 100});
  rig.pass(3900ms);
  CHECK_FALSE(rig.has<Finish>());
  rig.pass(200ms);
  CHECK(rig.only<Finish>().exit_code == 76);
}

TEST_CASE("a lost stream leaves the workers alone, and the agent attaches again") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.ended(0, Rig::code(0));
  rig.gone(0);
  rig.step(LinkDown{"reset"});
  CHECK(rig.only<Connect>().delay == 50ms);
  CHECK_FALSE(rig.has<SignalWorker>());
  CHECK_FALSE(rig.agent.view().connected);
  CHECK(rig.phase() == Phase::kRunning);
  rig.pass(50ms);
  rig.step(LinkUp{});
  const auto joins = rig.sent<Join>();
  REQUIRE(joins.size() == 1);
  REQUIRE(joins[0].reattach.has_value());
  const Reattach& reattach = *joins[0].reattach;
  CHECK(reattach.run == "r1");
  CHECK(reattach.incarnation == 7);
  CHECK(reattach.generation == 0);
  CHECK(reattach.workers_running);
  CHECK(reattach.ranks_done == std::vector<std::uint32_t>{0});
  CHECK(reattach.epoch == 1);
  rig.accept();
  CHECK(rig.sent<WorkersStarted>().size() == 1);  // nobody knows what was read
  REQUIRE(rig.sent<WorkerExited>().size() == 1);
  CHECK(rig.sent<WorkerExited>()[0].rank == 0);
  CHECK(rig.sent<WorkerExited>()[0].age == 50ms);
}

TEST_CASE("a worker that the agent's signal ended before the agent heard of it was stopped by it") {
  const auto reported = [](Duration apart, int signal, ExitStatus end = Rig::killed(15)) {
    Rig rig(test_config());
    rig.join();
    rig.run_generation(0);
    rig.step(LinkDown{"reset"});
    rig.ended(1, end);
    rig.now = rig.now + apart;
    rig.step(SignalReceived{signal});
    rig.step(LinkUp{});
    rig.accept();
    return rig.sent<WorkerExited>().at(0).agent_signaled;
  };
  CHECK(reported(10ms, 15));
  CHECK(reported(2s, 15));
  CHECK_FALSE(reported(2001ms, 15));
  CHECK_FALSE(reported(10ms, 2));
  CHECK(reported(10ms, 15, Rig::code(143)));
  CHECK_FALSE(reported(10ms, 15, Rig::code(1)));
}

TEST_CASE("a Leave says how long ago the agent was told") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.step(LinkDown{"reset"});
  rig.step(SignalReceived{15});
  rig.now = rig.now + 330ms;
  rig.step(LinkUp{});
  rig.accept();
  CHECK(rig.sent<Leave>().at(0).age == 330ms);
}

TEST_CASE("what happened while the stream was down is said after it is back") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.step(LinkDown{"reset"});
  rig.ended(1, Rig::code(3));
  CHECK_FALSE(rig.has<Send>());
  CHECK(rig.signals(0) == Signals{"15 leader"});  // siblings stop, server or not
  rig.gone(1);
  rig.step(FaultFired{4, 1});
  rig.ended(0, Rig::killed(15));
  rig.gone(0);
  rig.step(LinkUp{});
  CHECK_FALSE(rig.sent<Join>().at(0).reattach->workers_running);
  rig.accept();
  const auto reports = rig.sent<WorkerExited>();
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].rank == 1);
  CHECK_FALSE(reports[0].torn_down);
  CHECK(reports[1].torn_down);
  REQUIRE(rig.sent<ChaosFired>().size() == 1);
  CHECK(rig.sent<StopConfirmed>().empty());  // nobody ordered a stop yet
  rig.said(StopOrder{}, 0);
  CHECK(rig.sent<StopConfirmed>().size() == 1);
}

TEST_CASE("a silent server is left for a new stream well before the lease ends") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.pass(10s);
  CHECK(rig.has<Disconnect>());
  CHECK(rig.has<Connect>());
  CHECK_FALSE(rig.has<SignalWorker>());
}

TEST_CASE("stale messages are dropped, with a line") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(3);
  SECTION("another incarnation") {
    rig.incarnation = 6;
    rig.said(StopOrder{}, 3);
  }
  SECTION("another run") {
    rig.run = "r0";
    rig.said(StopOrder{}, 3);
  }
  SECTION("an older server") {
    rig.epoch = 2;
    rig.said(HeartbeatAck{});
    rig.epoch = 1;
    rig.said(StopOrder{}, 3);
  }
  SECTION("an older Prepare") {
    rig.said(Prepare{0, rig.assignment(3)}, 3);
  }
  SECTION("a Commit that nobody prepared") {
    rig.said(Commit{0, 1}, 4);
  }
  CHECK(rig.says("dropped a stale"));
  CHECK_FALSE(rig.has<SignalWorker>());
  CHECK_FALSE(rig.has<StartWorkers>());
  CHECK(rig.phase() == Phase::kRunning);
}

TEST_CASE("a server that speaks for another run owns none of these workers") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(5);
  rig.step(LinkDown{"reset"});
  rig.step(LinkUp{});
  rig.run = "r2";
  rig.incarnation = 1;
  rig.accept();
  CHECK(rig.signals(0) == kKilled);
  CHECK(rig.sent<WorkersStarted>().empty());
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::killed(9));
    CHECK(rig.sent<WorkerExited>().empty());
    rig.gone(i);
  }
  CHECK(rig.agent.view().generation == kNoGeneration);
  rig.form(0);
  CHECK(rig.only<StartWorkers>().run == "r2");
}

TEST_CASE("a run that turns out to have an older name is the same run") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(5);
  rig.run = "r0";
  SECTION("told on the stream, with a new epoch") {
    rig.epoch = 2;
    rig.said(StopOrder{}, 5);
  }
  SECTION("told when attaching again, under the same incarnation") {
    rig.step(LinkDown{"reset"});
    rig.step(LinkUp{});
    rig.accept();
    CHECK_FALSE(rig.has<SignalWorker>());
    rig.said(StopOrder{}, 5);
  }
  CHECK(rig.signals(0) == Signals{"15 leader"});
  CHECK(rig.agent.view().run == "r0");
  CHECK(rig.agent.view().generation == 5);
}

TEST_CASE("a stop is never confirmed while workers of a forgotten run die") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(5);
  rig.step(LinkDown{"reset"});
  rig.step(LinkUp{});
  rig.run = "r2";
  rig.incarnation = 9;
  rig.accept();
  rig.said(StopOrder{}, 5);
  CHECK(rig.sent<StopConfirmed>().empty());
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::killed(9));
    rig.gone(i);
  }
  CHECK(rig.sent<StopConfirmed>().size() == 1);
}

TEST_CASE("a refused Join ends at once with the server's code and words") {
  Rig rig(test_config());
  rig.step(Started{});
  rig.step(LinkUp{});
  rig.said(JoinRefused{JoinRefused::Why::kOtherProgram, "runs another program (host b)", 2});
  CHECK(rig.has<Disconnect>());
  const Finish finish = rig.only<Finish>();
  CHECK(finish.exit_code == 2);
  CHECK(finish.exit_class == ExitClass::kUsage);
  CHECK(finish.text == "runs another program (host b)");
}

TEST_CASE("a server that leaves takes nobody in: that is a lost server") {
  Rig rig(test_config());
  rig.step(Started{});
  rig.step(LinkUp{});
  rig.said(JoinRefused{JoinRefused::Why::kNotAllowed, "the server is leaving", 76});
  CHECK(rig.only<Finish>().exit_code == 76);
  CHECK(rig.only<Finish>().exit_class == ExitClass::kServerLost);
}

TEST_CASE("a Join that comes too early is tried again, and the wait says what for") {
  Rig rig(test_config());
  rig.step(Started{});
  rig.step(LinkUp{});
  JoinRefused early{JoinRefused::Why::kNotYet, "node \"a\" is still leaving the job", 75};
  rig.said(early);
  CHECK(rig.has<Disconnect>());
  CHECK(rig.has<Connect>());
  CHECK_FALSE(rig.has<Finish>());
  bool said = false;
  for (int tries = 0; tries < 20 && !said; ++tries) {
    rig.pass(1s);
    said = rig.says(
        "the server at a:29400 does not take this node in yet: node \"a\" is still "
        "leaving the job (");
    rig.step(LinkUp{});
    rig.said(early);
  }
  CHECK(said);
  rig.step(LinkUp{});
  rig.step(LinkDown{"refused"});
  rig.pass(10s);
  CHECK_FALSE(rig.says("yet"));
}

}  // namespace muster::agent
