// SPDX-License-Identifier: Apache-2.0
#include "agent/core/exit_status.h"

#include <cerrno>
#include <csignal>

#include "tests/unit/agent_core/rig.h"

namespace muster::agent {

TEST_CASE("waitid's pair is decoded once") {
  CHECK(decode_wait(CLD_EXITED, 0).succeeded());
  CHECK(decode_wait(CLD_EXITED, 7) == Rig::code(7));
  CHECK(decode_wait(CLD_KILLED, SIGKILL) == Rig::killed(SIGKILL));
  const ExitStatus dumped = decode_wait(CLD_DUMPED, SIGSEGV);
  CHECK(dumped.kind == ExitStatus::Kind::kSignaled);
  CHECK(dumped.value == SIGSEGV);
  CHECK(dumped.core_dumped);
}

TEST_CASE("our own signal numbers are the system's") {
  CHECK(kSigKill == SIGKILL);
  CHECK(kSigTerm == SIGTERM);
}

TEST_CASE("kinds of failure") {
  CHECK(failure_kind(Rig::code(1), false) == FailureKind::kExit);
  CHECK(failure_kind(Rig::killed(9), false) == FailureKind::kSignal);
  CHECK(failure_kind(Rig::killed(9), true) == FailureKind::kOom);
  CHECK(failure_kind(exec_failed(ENOENT, "x", "No such file"), true) == FailureKind::kSpawn);
  CHECK(spawn_exit_code(ENOENT) == 127);
  CHECK(spawn_exit_code(EACCES) == 126);
  CHECK(spawn_exit_code(ENOEXEC) == 126);
}

TEST_CASE("a node that is out of something is not a program that cannot be executed") {
  for (const int error : {EAGAIN, ENOMEM, ENFILE, EMFILE, ENOSPC}) {
    CHECK(spawn_exit_code(error) == 70);
    CHECK_FALSE(limit_words(error).empty());
  }
  CHECK(limit_words(EMFILE).find("ulimit -n") != std::string::npos);
  CHECK(limit_words(ENOENT).empty());
}

TEST_CASE("a report becomes the first-cause record") {
  WorkerExited report;
  report.rank = 5;
  report.local_rank = 1;
  report.pid = 42;
  report.status = Rig::killed(11);
  report.stderr_tail = std::string(5000, 'x') + "end";
  Failure failure = to_failure(report, "b");
  CHECK(failure.node == "b");
  CHECK(failure.rank == 5U);
  CHECK(failure.pid == 42);
  CHECK(failure.signal == 11);
  CHECK_FALSE(failure.core_dumped);
  CHECK_FALSE(failure.exit_code.has_value());
  CHECK(failure.stderr_tail.size() == 4096);
  CHECK(failure.stderr_tail.ends_with("xend"));

  report.status.core_dumped = true;
  CHECK(to_failure(report, "b").core_dumped);

  report.pid = 0;
  report.status = exec_failed(EACCES, "./t", "Permission denied");
  failure = to_failure(report, "b");
  CHECK(failure.kind == FailureKind::kSpawn);
  CHECK_FALSE(failure.pid.has_value());
  CHECK(failure.exit_code == 126);
  CHECK(failure.detail == "./t: Permission denied");
}

TEST_CASE("flat turns a worker's code into 1 and leaves Muster's own codes") {
  Outcome outcome;
  outcome.kind = OutcomeKind::kFailed;
  outcome.exit_class = ExitClass::kWorker;
  outcome.exit_code = 139;
  CHECK(exit_code_of(outcome, ExitCodeMode::kWorker) == 139);
  CHECK(exit_code_of(outcome, ExitCodeMode::kFlat) == 1);
  outcome.kind = OutcomeKind::kJoinTimeout;
  outcome.exit_class = ExitClass::kJoinTimeout;
  outcome.exit_code = 75;
  CHECK(exit_code_of(outcome, ExitCodeMode::kFlat) == 75);
}

}  // namespace muster::agent
