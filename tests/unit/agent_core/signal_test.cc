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

void end_all(Rig& rig, int signal) {
  for (std::uint32_t i = 0; i < 2; ++i) {
    rig.ended(i, Rig::killed(signal));
    rig.gone(i);
  }
}

}  // namespace

TEST_CASE("a signal before anything is known ends at once") {
  Rig rig(test_config());
  SECTION("before the start") {}
  SECTION("connecting") {
    rig.step(Started{});
  }
  SECTION("stream open") {
    rig.step(Started{});
    rig.step(LinkUp{});
  }
  rig.step(SignalReceived{2});
  const Finish finish = rig.only<Finish>();
  CHECK(finish.exit_code == 130);
  CHECK(finish.exit_class == ExitClass::kSignal);
  CHECK_FALSE(finish.outcome.has_value());
}

TEST_CASE("a signal while waiting for nodes: leave and end at once") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.step(SignalReceived{15});
  CHECK(rig.sent<Leave>().at(0).signal == 15);
  rig.answer();
  CHECK(rig.only<Finish>().exit_code == 143);
}

TEST_CASE("a signal between Prepare and Commit leaves no port behind and starts nothing") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.said(Prepare{0, rig.assignment(0, 2)}, 0);
  rig.step(MasterPortHeld{0, 20001});
  rig.step(SignalReceived{15});
  CHECK(rig.has<ReleaseMasterPort>());
  rig.answer();
  CHECK(rig.has<Finish>());
  CHECK(rig.said(Commit{0, 20001}, 0).empty());
}

TEST_CASE("what a stop took down before the node leaves does not part with it") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.ended(0, ExitStatus{});
  rig.said(StopOrder{}, 0);
  rig.step(SignalReceived{2});
  rig.ended(1, Rig::killed(15));
  CHECK(rig.sent<WorkerExited>().at(0).torn_down);
  CHECK_FALSE(rig.sent<WorkerExited>().at(0).parting);
}

TEST_CASE("a signal while running: leave, file, signal as it came, then the end") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.step(ProgressSampled{{{0, 4, std::nullopt, 0s}}});
  rig.step(SignalReceived{2});
  CHECK(std::holds_alternative<Send>(rig.last.at(0)));
  CHECK(rig.all<WriteStopFile>().size() == 2);
  CHECK(rig.signals(0) == Signals{"2 leader"});  // at once, although it reports progress
  CHECK(rig.signals(1) == Signals{"2 leader"});
  CHECK(rig.phase() == Phase::kLeaving);
  rig.ended(0, Rig::killed(2));
  const WorkerExited report = rig.sent<WorkerExited>().at(0);
  CHECK(report.agent_signaled);
  CHECK(report.torn_down);
  CHECK(report.parting);
  CHECK_FALSE(rig.has<NoteFirstCause>());
  rig.gone(0);
  rig.said(StopOrder{}, 0);  // the server stops the generation of the node that leaves
  rig.ended(1, Rig::code(0));
  rig.gone(1);
  CHECK(rig.sent<StopConfirmed>().size() == 1);
  CHECK_FALSE(rig.has<Finish>());
  rig.answer();
  CHECK(rig.only<Finish>().exit_code == 130);
}

TEST_CASE("a signal while workers are starting reaches those that are not spawned yet") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.form(0, 2);
  rig.step(WorkerSpawned{0, 100});
  rig.step(SignalReceived{15});
  CHECK(rig.signals(0) == Signals{"15 leader"});
  CHECK(rig.signals(1) == Signals{"15 leader"});
  rig.step(WorkerSpawned{1, 101});
  end_all(rig, 15);
  rig.answer();
  CHECK(rig.only<Finish>().exit_code == 143);
}

TEST_CASE("the stop budget bounds the workers' grace, less what the agent needs") {
  AgentConfig config = test_config(2, 2);
  config.stop_budget = 10s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0, 2);
  Duration grace = 7s;
  SECTION("from the signal") {}
  SECTION("a longer stop that is under way is cut") {
    rig.said(StopOrder{}, 0);
    rig.pass(1s);
  }
  rig.step(SignalReceived{15});
  rig.pass(grace - 1ms);
  CHECK(rig.signals(0).empty());
  rig.pass(1ms);
  CHECK(rig.signals(0) == kKilled);
}

TEST_CASE("what SIGKILL does not end is given up on in time for the budget") {
  AgentConfig config = test_config(2, 2);
  Duration patience = 5s;
  SECTION("stopped by the server: as long as it may take") {
    Rig rig(config);
    rig.join();
    rig.run_generation(0, 2);
    rig.said(StopOrder{}, 0);
    rig.pass(30s);
    REQUIRE(rig.signals(0) == kKilled);
    for (const SignalWorker& kill : rig.all<SignalWorker>())
      CHECK(kill.patience == 5s);
    return;
  }
  SECTION("the budget has room") {
    config.spec.policy.stop_grace = 1s;
  }
  SECTION("the budget is a little longer than the grace") {
    config.spec.policy.stop_grace = 4s;
    config.stop_budget = 9s;
    patience = 3s;  // two are for the end of the agent
  }
  SECTION("the grace takes what the budget leaves to workers") {
    config.stop_budget = 10s;
    patience = 1s;
  }
  SECTION("a budget for nothing") {
    config.stop_budget = 100ms;
    patience = 1s;
  }
  Rig rig(config);
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{15});
  if (!rig.has<SignalWorker>() || rig.all<SignalWorker>()[0].signal != 9) rig.pass(7s);
  REQUIRE(rig.signals(1) == kKilled);
  for (const SignalWorker& kill : rig.all<SignalWorker>())
    CHECK(kill.patience == patience);
}

TEST_CASE("the second signal shortens, the third kills; an echo within 100 ms counts as one") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{2});
  rig.now = rig.now + 100ms;
  rig.step(SignalReceived{2});
  CHECK(rig.last.empty());
  rig.now = rig.now + 400ms;
  rig.step(SignalReceived{2});
  CHECK(rig.signals(0).empty());
  SECTION("two seconds after the second") {
    rig.pass(1900ms);
    CHECK(rig.signals(0).empty());
    rig.pass(100ms);
    CHECK(rig.signals(0) == kKilled);
  }
  SECTION("the third") {
    rig.now = rig.now + 200ms;
    rig.step(SignalReceived{15});
    CHECK(rig.signals(0) == kKilled);
    CHECK(rig.signals(1) == kKilled);
    end_all(rig, 9);
    CHECK(rig.only<Finish>().exit_code == 130);  // the first one's
  }
}

TEST_CASE("the only member waits shortly for the outcome of its leaving") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.step(SignalReceived{15});
  end_all(rig, 15);
  CHECK(rig.sent<StopConfirmed>().size() == 1);
  rig.answer();
  CHECK_FALSE(rig.has<Finish>());
  SECTION("it comes") {
    rig.said(OutcomeNotice{outcome(OutcomeKind::kStopped, 143, ExitClass::kStopped)}, 0);
    CHECK(rig.sent<OutcomeSeen>().size() == 1);
    CHECK(event_name(rig.only<Emit>().event.body) == std::string("job_finished"));
    CHECK(rig.only<Finish>().exit_code == 143);
    CHECK(rig.only<Finish>().exit_class == ExitClass::kSignal);
  }
  SECTION("it does not") {
    rig.pass(499ms);
    CHECK_FALSE(rig.has<Finish>());
    rig.pass(1ms);
    CHECK(rig.only<Finish>().exit_code == 143);
  }
  SECTION("the stream ends: it has heard of the leave") {
    rig.step(LinkDown{"closed"});
    CHECK(rig.only<Finish>().exit_code == 143);
    CHECK_FALSE(rig.has<Connect>());
  }
  SECTION("a second signal") {
    rig.now = rig.now + 200ms;
    rig.step(SignalReceived{15});
    CHECK_FALSE(rig.has<Finish>());
    rig.pass(50ms);  // 250 ms in all
    CHECK(rig.only<Finish>().exit_code == 143);
  }
}

TEST_CASE("a job that succeeded before the signal was read is a success") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.ended(0, Rig::code(0));
  rig.ended(1, Rig::code(0));
  SECTION("outcome first") {
    rig.said(OutcomeNotice{success()}, 0);
    rig.step(SignalReceived{15});
    CHECK(rig.signals(0) == Signals{"15 descendants"});  // leftovers need not have their grace now
  }
  SECTION("signal first") {
    rig.step(SignalReceived{15});
    rig.said(OutcomeNotice{success()}, 0);
  }
  rig.gone(0);
  rig.gone(1);
  CHECK(rig.only<Finish>().exit_code == 0);
}

TEST_CASE("a signal in the middle of a failure's stop") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.ended(0, Rig::code(1));
  CHECK(rig.signals(1) == Signals{"15 leader"});
  rig.step(SignalReceived{2});
  CHECK(rig.sent<Leave>().size() == 1);
  CHECK_FALSE(rig.has<WriteStopFile>());
  CHECK_FALSE(rig.has<SignalWorker>());  // both have theirs
  rig.gone(0);
  rig.ended(1, Rig::killed(15));
  CHECK_FALSE(rig.sent<WorkerExited>().at(0).agent_signaled);
  rig.gone(1);
  rig.answer();
  CHECK(rig.only<Finish>().exit_code == 130);
}

TEST_CASE("forwarded signals pass and stop nothing") {
  AgentConfig config = test_config();
  config.forward_signals = {10, 12};
  Rig rig(config);
  rig.step(SignalReceived{10});
  CHECK(rig.last.empty());
  rig.join();
  rig.form(0);
  rig.step(WorkerSpawned{0, 100});
  rig.step(SignalReceived{10});
  CHECK(rig.signals(0) == Signals{"10 leader"});
  CHECK(rig.signals(1).empty());  // not exec'd: USR1 would end it
  rig.step(WorkerSpawned{1, 101});
  rig.ended(0, Rig::code(0));
  rig.step(SignalReceived{12});
  CHECK(rig.signals(0).empty());
  CHECK(rig.signals(1) == Signals{"12 leader"});
  CHECK_FALSE(rig.has<Send>());
  CHECK(rig.phase() == Phase::kRunning);
}

TEST_CASE("signalled while the stream is down: the leave is said if it comes back in time") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.step(LinkDown{"reset"});
  rig.step(SignalReceived{15});
  CHECK(rig.signals(0) == Signals{"15 leader"});
  rig.step(LinkUp{});
  rig.accept();
  CHECK(rig.sent<Leave>().size() == 1);
  rig.said(StopOrder{}, 0);
  rig.step(LinkDown{"reset"});
  CHECK(rig.has<Connect>());  // the others wait for the confirmation
  rig.step(LinkUp{});
  rig.accept();
  CHECK(rig.sent<Leave>().size() == 1);  // nobody knows whether the first was read
  end_all(rig, 15);
  CHECK(rig.sent<StopConfirmed>().size() == 1);
  rig.answer();
  CHECK(rig.only<Finish>().exit_code == 143);
}

TEST_CASE("workers end while nobody hears of the leave: the end waits for a stream, for a while") {
  AgentConfig config = test_config(2, 2);
  Rig rig(config);
  rig.join();
  rig.run_generation(0, 2);
  rig.step(LinkDown{"reset"});
  rig.step(SignalReceived{15});
  end_all(rig, 15);
  CHECK_FALSE(rig.has<Finish>());
  CHECK(rig.phase() == Phase::kLeaving);
  const auto refuse = [&] {
    rig.step(LinkDown{"refused"});
    CHECK(rig.has<Connect>());
  };
  refuse();
  SECTION("the server comes back") {
    rig.step(LinkUp{});
    rig.accept();
    CHECK(rig.sent<WorkerExited>().size() == 2);
    CHECK(rig.sent<Leave>().size() == 1);
    CHECK(rig.sent<StopConfirmed>().size() == 1);
    SECTION("and hears it") {
      rig.answer();
      CHECK(rig.only<Finish>().exit_code == 143);
    }
    SECTION("and is gone again before it says so") {
      rig.step(LinkDown{"reset"});
      CHECK(rig.has<Connect>());
      rig.step(LinkUp{});
      rig.accept();
      CHECK(rig.sent<Leave>().size() == 1);
      rig.answer();
      CHECK(rig.only<Finish>().exit_code == 143);
    }
  }
  SECTION("it came back and knows the node no more") {
    rig.step(LinkUp{});
    rig.said(Evicted{"this node was declared lost"});
    CHECK(rig.only<Finish>().exit_code == 143);
  }
  SECTION("it takes nobody in") {
    rig.step(LinkUp{});
    rig.said(JoinRefused{JoinRefused::Why::kNotAllowed, "no", 76});
    CHECK(rig.only<Finish>().exit_code == 143);
  }
  SECTION("it stays away: ten seconds, with a line after the first") {
    rig.pass(900ms);
    CHECK_FALSE(rig.says("leaves"));
    rig.pass(200ms);
    CHECK(rig.says("trying for 9s to tell it that this node leaves"));
    rig.pass(8800ms);
    CHECK_FALSE(rig.says("leaves"));
    CHECK_FALSE(rig.has<Finish>());
    rig.pass(200ms);
    CHECK(rig.only<Finish>().exit_code == 143);
  }
  SECTION("a second signal does not wait") {
    rig.pass(200ms);
    rig.step(SignalReceived{15});
    CHECK(rig.only<Finish>().exit_code == 143);
  }
}

TEST_CASE("the budget bounds the wait for a stream too") {
  AgentConfig config = test_config(2, 2);
  config.stop_budget = 5s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0, 2);
  rig.step(LinkDown{"reset"});
  rig.step(SignalReceived{15});
  end_all(rig, 15);
  rig.pass(1900ms);
  CHECK_FALSE(rig.has<Finish>());
  rig.pass(200ms);
  CHECK(rig.only<Finish>().exit_code == 143);
}

TEST_CASE("who stops it by hand does not wait long for a stream") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.step(LinkDown{"reset"});
  rig.step(SignalReceived{2});
  end_all(rig, 2);
  rig.pass(499ms);
  CHECK_FALSE(rig.has<Finish>());
  rig.pass(1ms);
  CHECK(rig.only<Finish>().exit_code == 130);
}

TEST_CASE("a leave is heard with the confirmation that follows it, and not before") {
  AgentConfig config = test_config(2, 2);
  Rig rig(config);
  rig.join();
  rig.run_generation(0, 2);
  rig.step(SignalReceived{15});
  CHECK(rig.sent<Leave>().size() == 1);
  rig.pass(config.spec.policy.heartbeat);
  rig.answer();
  SECTION("the stream breaks while workers save: the others wait for their end") {
    rig.step(LinkDown{"reset"});
    end_all(rig, 15);
    CHECK_FALSE(rig.has<Finish>());
  }
  SECTION("the server stands still") {
    end_all(rig, 15);
    CHECK(rig.sent<StopConfirmed>().size() == 1);
    rig.pass(8s);
    CHECK_FALSE(rig.has<Finish>());
    rig.pass(2s);
    CHECK(rig.only<Finish>().exit_code == 143);
  }
}

TEST_CASE("the answer to the last words is waited for however long workers took to stop") {
  const auto [signal, took] = GENERATE(std::pair{2, 1s}, std::pair{15, 12s}, std::pair{15, 27s});
  CAPTURE(signal, took.count());
  AgentConfig config = test_config();
  config.spec.policy.node_timeout = 1000s;
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  rig.step(SignalReceived{signal});
  rig.pass(took);
  end_all(rig, signal);
  CHECK_FALSE(rig.has<Finish>());
  SECTION("it comes, and then the outcome") {
    rig.answer();
    CHECK_FALSE(rig.has<Finish>());
    rig.said(OutcomeNotice{outcome(OutcomeKind::kStopped, 128 + signal, ExitClass::kStopped)}, 0);
    CHECK(event_name(rig.only<Emit>().event.body) == std::string("job_finished"));
    CHECK(rig.only<Finish>().exit_code == 128 + signal);
  }
  SECTION("it does not: within the budget, or half a second") {
    rig.pass(499ms);
    CHECK_FALSE(rig.has<Finish>());
    rig.pass(10s);
    CHECK(rig.only<Finish>().exit_code == 128 + signal);
  }
}

TEST_CASE("the last member does not wait for the outcome of who did not hear of its leave") {
  Rig rig(test_config());
  rig.join();
  rig.run_generation(0);
  rig.step(SignalReceived{2});
  end_all(rig, 2);
  rig.pass(500ms);
  CHECK(rig.only<Finish>().exit_code == 130);
}

TEST_CASE("a job that goes on without this node and succeeds does not make its end a success") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.step(LinkDown{"reset"});
  rig.step(SignalReceived{15});
  end_all(rig, 15);
  rig.step(LinkUp{});
  rig.said(OutcomeNotice{success()}, 1);
  CHECK(rig.only<Finish>().exit_code == 143);
}

TEST_CASE("a Join says that the node leaves") {
  Rig rig(test_config(2, 2));
  rig.join();
  rig.run_generation(0, 2);
  rig.step(LinkDown{"reset"});
  rig.step(LinkUp{});
  CHECK_FALSE(rig.sent<Join>().at(0).reattach->leaving);
  rig.accept();
  rig.step(LinkDown{"reset"});
  rig.step(SignalReceived{15});
  rig.step(LinkUp{});
  CHECK(rig.sent<Join>().at(0).reattach->leaving);
}

TEST_CASE("a report says whether its agent would stop on that signal as well") {
  AgentConfig config = test_config();
  config.more_stop_signals = {10};
  Rig rig(config);
  rig.join();
  rig.run_generation(0);
  ExitStatus status;
  bool stops = true;
  SECTION("asked for") {
    status = Rig::killed(10);
  }
  SECTION("always") {
    status = Rig::killed(15);
  }
  SECTION("through a shell") {
    status = Rig::code(128 + 10);
  }
  SECTION("another") {
    status = Rig::killed(12);
    stops = false;
  }
  SECTION("its own code") {
    status = Rig::code(10);
    stops = false;
  }
  rig.ended(0, status);
  CHECK(rig.sent<WorkerExited>().at(0).stops_agent == stops);
}

}  // namespace muster::agent
