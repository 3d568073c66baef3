// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/failure_block.h"

#include <csignal>
#include <string>

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

Failure segfault() {
  Failure failure;
  failure.kind = FailureKind::kSignal;
  failure.node = "b";
  failure.rank = 5;
  failure.local_rank = 1;
  failure.pid = 4711;
  failure.signal = 11;
  return failure;
}

Outcome failed(Failure cause) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kFailed;
  outcome.exit_code = 139;
  outcome.exit_class = ExitClass::kWorker;
  outcome.first_cause = std::move(cause);
  outcome.restarts_used = 3;
  outcome.max_restarts = 3;
  return outcome;
}

}  // namespace

TEST_CASE("the block names the first cause, its words, the victims and the logs") {
  Failure cause = segfault();
  cause.stderr_tail = "loading\nstep 12\r\nabout to fail\x1b[31m\n";
  cause.error_file = R"({"message": {"message": "ValueError: no such shard\nmore"}})";
  Outcome outcome = failed(cause);
  Failure stopped = segfault();
  stopped.node = "a";
  stopped.rank = 0;
  stopped.local_rank = 0;
  stopped.pid = 12;
  stopped.signal = 15;
  stopped.torn_down = true;
  Failure followed = stopped;
  followed.rank = 1;
  followed.local_rank = 1;
  followed.pid = 13;
  followed.kind = FailureKind::kExit;
  followed.signal.reset();
  followed.exit_code = 1;
  followed.torn_down = false;
  outcome.victims = {stopped, followed};
  CHECK(failure_block("train", outcome, 139, "/logs/train/run-1") ==
        "muster: job train failed\n"
        "  first cause: rank 5 (node b, local rank 1, pid 4711): ended by SIGSEGV (invalid memory "
        "access)\n"
        "  it reported: ValueError: no such shard\n"
        "  last lines of its stderr:\n"
        "    | loading\n"
        "    | step 12\n"
        "    | about to fail?[31m\n"
        "  victims:\n"
        "    rank 0 (node a, local rank 0, pid 12): stopped by muster, ended by SIGTERM (told to "
        "terminate)\n"
        "    rank 1 (node a, local rank 1, pid 13): failed after the first cause, exit code 1\n"
        "  restarts used: 3 of 3\n"
        "  exit code: 139\n"
        "  logs: /logs/train/run-1\n");
}

TEST_CASE("a victim that crashed while it was stopped is told from one that obeyed") {
  Outcome outcome;
  outcome.kind = OutcomeKind::kFailed;
  outcome.first_cause = Failure{};
  Failure victim;
  victim.kind = FailureKind::kSignal;
  victim.signal = SIGSEGV;
  victim.torn_down = true;
  outcome.victims = {victim};
  CHECK(failure_block("j", outcome, 1, "").find("while muster stopped it, ended by SIGSEGV") !=
        std::string::npos);
  outcome.victims.front().signal = SIGTERM;
  CHECK(failure_block("j", outcome, 1, "").find("stopped by muster, ended by SIGTERM") !=
        std::string::npos);
}

TEST_CASE("a job without a first cause shows its one line of text") {
  Outcome outcome;
  outcome.kind = OutcomeKind::kJoinTimeout;
  outcome.text = "1 of 2 nodes joined (a); 1 missing after 600s";
  CHECK(failure_block("j", outcome, 75, "") ==
        "muster: job j failed\n"
        "  1 of 2 nodes joined (a); 1 missing after 600s\n"
        "  restarts used: 0 of 0\n"
        "  exit code: 75\n");
}

TEST_CASE("what the kernel said of devices has a line of its own") {
  Failure cause = segfault();
  cause.detail = "GPU 0000:1b:00: Xid 31, GPU memory page fault";
  const std::string text = failure_block("j", failed(cause), 139, "");
  CHECK(text.find("access)\n  kernel: GPU 0000:1b:00: Xid 31, GPU memory page fault\n") !=
        std::string::npos);
  cause.kind = FailureKind::kSpawn;  // there the detail is the reason, and in the first line
  CHECK(failure_block("j", failed(cause), 127, "").find("kernel:") == std::string::npos);
}

TEST_CASE("each kind of failure has its words") {
  Failure failure;
  failure.node = "n";
  failure.kind = FailureKind::kExit;
  failure.exit_code = 3;
  CHECK(failure_words(failure) == "exit code 3");
  failure.exit_code = 137;
  CHECK(failure_words(failure) == "exit code 137 (from a shell: SIGKILL (killed))");
  failure.kind = FailureKind::kSignal;
  failure.signal = 40;
  CHECK(failure_words(failure) == "ended by SIG40");
  failure.signal = 11;
  failure.core_dumped = true;
  CHECK(failure_words(failure) == "ended by SIGSEGV (invalid memory access), core dumped");
  failure.core_dumped = false;
  failure.signal = 9;
  CHECK(failure_words(failure) ==
        "ended by SIGKILL (killed; its control group counts no out-of-memory kill)");
  failure.torn_down = true;  // by us
  CHECK(failure_words(failure) == "ended by SIGKILL (killed)");
  failure.kind = FailureKind::kOom;
  CHECK(failure_words(failure) == "killed because memory ran out");
  failure.detail = "./x: No such file or directory";
  failure.kind = FailureKind::kSpawn;
  CHECK(failure_words(failure) == "could not start: ./x: No such file or directory");
  failure.detail = "no heartbeat for 10s";
  failure.kind = FailureKind::kNodeLost;
  CHECK(failure_words(failure) == "lost: no heartbeat for 10s");
  CHECK(failure_place(failure) == "node n");
  failure.kind = FailureKind::kHang;
  CHECK(failure_words(failure) == "made no progress: no heartbeat for 10s");
}

TEST_CASE("a long tail and many victims are cut, and hostile text cannot add lines") {
  Failure cause = segfault();
  for (int i = 0; i < 100; ++i)
    cause.stderr_tail += "line " + std::to_string(i) + "\n";
  Outcome outcome = failed(cause);
  outcome.victims.assign(40, segfault());
  outcome.text = "x\nmuster: job fake succeeded";
  const std::string block = failure_block("j\nmuster: ok", outcome, 1, "");
  CHECK(block.starts_with("muster: job j?muster: ok failed\n  x?muster: job fake succeeded\n"));
  CHECK(block.find("| line 79\n") == std::string::npos);
  CHECK(block.find("    | line 80\n") != std::string::npos);
  CHECK(block.find("    | line 99\n") != std::string::npos);
  CHECK(block.find("    and 24 more\n") != std::string::npos);
}

}  // namespace muster::agent
