// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_core/rig.h"

namespace muster::agent {
namespace {

Outcome outcome(OutcomeKind kind, int code, ExitClass exit_class) {
  Outcome out;
  out.kind = kind;
  out.exit_code = code;
  out.exit_class = exit_class;
  return out;
}
Outcome success() {
  return outcome(OutcomeKind::kSucceeded, 0, ExitClass::kSucceeded);
}
Outcome failure(int code) {
  return outcome(OutcomeKind::kFailed, code, ExitClass::kWorker);
}

void end_all(Rig& rig, int signal) {
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::killed(signal));
    rig.gone(i);
  }
}

}  // namespace

// ------------------------------------------------------------ the outcome

TEST_CASE("success ends in 0, seen and reported") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::code(0));
    rig.gone(i);
  }
  rig.said(OutcomeNotice{success()}, 0);
  CHECK(rig.sent<OutcomeSeen>().size() == 1);
  CHECK(rig.has<ReleaseMasterPort>());
  CHECK(rig.has<Disconnect>());
  CHECK(event_name(rig.only<Emit>().event.body) == std::string("job_finished"));
  const Finish finish = rig.only<Finish>();
  CHECK(finish.exit_code == 0);
  REQUIRE(finish.outcome.has_value());
  CHECK(std::holds_alternative<Finish>(rig.last.back()));
}

TEST_CASE("job_finished is written once, whether the server sends the event or not") {
  Rig rig(test_config());
  rig.join();
  JobEvent event;
  event.body = event::JobFinished{success()};
  rig.said(JobEventNotice{event, 0s});
  CHECK(rig.all<Emit>().size() == 1);
  rig.said(OutcomeNotice{success()});
  CHECK_FALSE(rig.has<Emit>());
  CHECK(rig.has<Finish>());
}

TEST_CASE("a fault that never fired is told once, before the end") {
  Rig rig(test_config());
  rig.join();
  JobEvent missed;
  missed.body = event::ChaosMissed{"{\"do\":\"kill\"}", "rank 0"};
  rig.said(JobEventNotice{missed, 0s});
  CHECK(rig.only<Say>().text == "fault never fired: {\"do\":\"kill\"}");
  CHECK(rig.has<Emit>());
  JobEvent finished;
  finished.body = event::JobFinished{success()};
  rig.said(JobEventNotice{finished, 0s});
  rig.said(JobEventNotice{missed, 0s});
  CHECK_FALSE(rig.has<Say>());
  CHECK_FALSE(rig.has<Emit>());
}

TEST_CASE("a failed job: exit code as configured") {
  AgentConfig config = test_config();
  int expected = 7;
  SECTION("worker") {
    config.exit_code = ExitCodeMode::kWorker;
  }
  SECTION("flat") {
    config.exit_code = ExitCodeMode::kFlat;
    expected = 1;
  }
  Rig rig(config);
  rig.join();
  rig.said(OutcomeNotice{failure(7)});
  CHECK(rig.only<Finish>().exit_code == expected);
  CHECK(rig.only<Finish>().exit_class == ExitClass::kWorker);
}

TEST_CASE("nothing runs when the agent ends with an outcome") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.said(OutcomeNotice{failure(7)}, 0);
  CHECK_FALSE(rig.has<Finish>());
  CHECK(rig.signals(0) == Signals{"15 leader"});
  end_all(rig, 15);
  CHECK(rig.only<Finish>().exit_code == 7);
}

TEST_CASE("what a successful worker left behind is waited for, not killed at once") {
  AgentConfig config = test_config(1);
  config.spec.policy.stop_grace = 5s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  rig.ended(0, Rig::code(0));
  rig.said(OutcomeNotice{success()}, 0);
  CHECK(rig.sent<OutcomeSeen>().size() == 1);
  CHECK_FALSE(rig.has<SignalWorker>());
  rig.pass(5s);
  CHECK(rig.signals(0) == Signals{"15 descendants"});
  rig.gone(0);
  CHECK(rig.only<Finish>().exit_code == 0);
}

TEST_CASE("an outcome answered instead of a Join is the end") {
  Rig rig(test_config());
  rig.step(Started{});
  rig.step(LinkUp{});
  rig.said(OutcomeNotice{failure(3)});
  CHECK(rig.only<Finish>().exit_code == 3);
}

// ------------------------------------------------------------ other ends

TEST_CASE("evicted: killed without grace, 77") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.said(Evicted{"lost for 12s"}, 0);
  CHECK(rig.signals(0) == kKilled);
  CHECK_FALSE(rig.has<Finish>());
  end_all(rig, 9);
  CHECK(rig.only<Finish>().exit_code == 77);
  CHECK(rig.only<Finish>().text.find("lost for 12s") != std::string::npos);
}

TEST_CASE("evicted while leaving: the workers die, the code stays") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{15});
  rig.said(Evicted{"gone"}, 0);
  CHECK(rig.signals(0) == kKilled);
  end_all(rig, 9);
  CHECK(rig.only<Finish>().exit_code == 143);
}

TEST_CASE("the server leaves: workers stop with grace, 76 with its reason") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.said(ServerLeaving{"host a was told to stop"}, 0);
  CHECK(rig.signals(0) == Signals{"15 leader"});
  rig.step(LinkDown{"closed"});
  CHECK_FALSE(rig.has<Connect>());
  end_all(rig, 15);
  CHECK(rig.only<Finish>().exit_code == 76);
  CHECK(rig.only<Finish>().text == "the server is leaving: host a was told to stop");
}

TEST_CASE("an outcome outranks a server that leaves, in either order") {
  Rig rig(test_config(1));
  rig.join();
  rig.run_generation(0);
  SECTION("outcome first") {
    rig.said(OutcomeNotice{failure(9)}, 0);
    rig.said(ServerLeaving{"over"}, 0);
  }
  SECTION("leaving first") {
    rig.said(ServerLeaving{"over"}, 0);
    rig.said(OutcomeNotice{failure(9)}, 0);
  }
  rig.ended(0, Rig::killed(15));
  rig.gone(0);
  CHECK(rig.only<Finish>().exit_code == 9);
}

TEST_CASE("a lost guardian: kill, leave, 70") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.step(GuardianLost{});
  CHECK(rig.signals(0) == kKilled);
  CHECK(rig.sent<Leave>().size() == 1);
  end_all(rig, 9);
  CHECK(rig.only<Finish>().exit_code == 70);
}

TEST_CASE("after the end the machine is silent") {
  Rig rig(test_config());
  rig.join();
  rig.said(OutcomeNotice{failure(1)});
  CHECK(rig.has<Finish>());
  CHECK(rig.step(SignalReceived{15}).empty());
  CHECK(rig.step(LinkDown{"x"}).empty());
  CHECK(rig.said(OutcomeNotice{failure(2)}).empty());
  CHECK(rig.step(Tick{}).empty());
  CHECK_FALSE(rig.agent.next_deadline().has_value());
  CHECK(rig.phase() == Phase::kFinished);
}

}  // namespace muster::agent
