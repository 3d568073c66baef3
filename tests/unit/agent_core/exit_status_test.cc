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

TEST_CASE("a start that failed: not there, or not to be executed") {
  CHECK(exec_failed(ENOENT, "x", "No such file").detail == "x: No such file");
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
