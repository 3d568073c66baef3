// SPDX-License-Identifier: Apache-2.0
#include "proto/base/failure.h"

#include <cerrno>
#include <csignal>
#include <string>

#include <catch2/catch.hpp>

namespace muster {
namespace {

ExitStatus by(int signal) {
  return {ExitStatus::Kind::kSignaled, signal, false, ""};
}
ExitStatus code(int value) {
  return {ExitStatus::Kind::kExited, value, false, ""};
}
ExitStatus not_started(int error) {
  return {ExitStatus::Kind::kExecFailed, error, false, "./t: no"};
}
Failure failed(const ExitStatus& status, bool oom = false) {
  WorkerExited report;
  report.status = status;
  report.oom = oom;
  return to_failure(report, "a");
}

}  // namespace

TEST_CASE("a crash is better evidence than an exit, and an exit than an abort") {
  for (const int crash : {SIGSEGV, SIGKILL, SIGTERM, SIGUSR1})
    CHECK(evidence_of(by(crash)) == Evidence::kCrash);
  CHECK(evidence_of(not_started(ENOENT)) == Evidence::kCrash);
  CHECK(evidence_of(code(1)) == Evidence::kExit);
  CHECK(evidence_of(code(128 + SIGSEGV)) == Evidence::kExit);
  for (const ExitStatus& status : {by(SIGABRT), code(134), by(SIGPIPE), code(141)})
    CHECK(evidence_of(status) == Evidence::kReaction);
  CHECK(Evidence::kCrash < Evidence::kExit);
  CHECK(Evidence::kExit < Evidence::kReaction);
  CHECK(Evidence::kReaction < Evidence::kLostPeer);
}

TEST_CASE("who says that it lost a peer is no better evidence than any other end") {
  for (const char* words :
       {"ConnectionResetError: [Errno 104] Connection reset by peer",
        "RuntimeError: [pair.cc:525] Connection closed by peer [10.0.0.1]:4242",
        "BrokenPipeError: [Errno 32] Broken pipe\nterminate called\n#0 frame\n#1 frame",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting"})
    for (const ExitStatus& status : {code(1), by(SIGABRT)})
      CHECK(evidence_of(status, words) == Evidence::kLostPeer);
  CHECK(evidence_of(by(SIGSEGV), "Broken pipe") == Evidence::kCrash);
  CHECK(evidence_of(code(1), "ValueError: no such shard") == Evidence::kExit);
  // It went on after that: the last eight lines count.
  CHECK(evidence_of(code(1), "Broken pipe\n1\n2\n3\n4\n5\n6\n7\n8") == Evidence::kExit);
  CHECK(evidence_of(code(1), "Broken pipe\n1\n2\n3\n4\n5\n6\n7") == Evidence::kLostPeer);
  CHECK_FALSE(speaks_of_a_lost_peer(""));
  CHECK_FALSE(speaks_of_a_lost_peer("\n\n"));
}

TEST_CASE("agents and servers read the same evidence") {
  for (int value = 1; value < 256; ++value)
    CHECK(evidence_of(failed(code(value))) == evidence_of(code(value)));
  for (int signal = 1; signal <= 64; ++signal)
    CHECK(evidence_of(failed(by(signal))) == evidence_of(by(signal)));
  CHECK(evidence_of(failed(not_started(EACCES))) == evidence_of(not_started(EACCES)));
  CHECK(evidence_of(failed(by(SIGKILL), true)) == Evidence::kCrash);
  Failure lost;
  lost.kind = FailureKind::kNodeLost;
  CHECK(evidence_of(lost) == Evidence::kCrash);
  Failure hung;
  hung.kind = FailureKind::kHang;
  CHECK(evidence_of(hung) == Evidence::kExit);
}

TEST_CASE("the signal behind an end") {
  CHECK(ending_signal(by(SIGTERM)) == SIGTERM);
  CHECK(ending_signal(code(143)) == SIGTERM);
  CHECK(ending_signal(code(15)) == 0);
  CHECK(ending_signal(code(128)) == 0);
  CHECK(ending_signal(not_started(15)) == 0);
  CHECK(ending_signal(failed(code(130))) == SIGINT);
  CHECK(ending_signal(failed(by(SIGKILL), true)) == 0);  // nobody asked it to stop
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM})
    CHECK(is_stop_signal(signal));
  for (const int signal : {0, SIGKILL, SIGUSR1, SIGSEGV, SIGABRT})
    CHECK_FALSE(is_stop_signal(signal));
}

TEST_CASE("a lost peer makes a worker fail, not crash") {
  for (const ExitStatus& status :
       {by(SIGABRT), code(134), by(SIGPIPE), code(1), code(255), by(SIGTERM)})
    CHECK(may_follow_a_lost_peer(failed(status)));
  for (const ExitStatus& status :
       {by(SIGSEGV), code(139), by(SIGKILL), code(137), by(SIGBUS), by(SIGSYS), not_started(2)})
    CHECK_FALSE(may_follow_a_lost_peer(failed(status)));
  CHECK_FALSE(may_follow_a_lost_peer(failed(by(SIGKILL), true)));
}

TEST_CASE("a report becomes the record of a failure") {
  WorkerExited report;
  report.rank = 5;
  report.local_rank = 1;
  report.pid = 42;
  report.status = by(SIGSEGV);
  report.stderr_tail = std::string(5000, 'x') + "end";
  report.error_file = "{}";
  Failure failure = to_failure(report, "b");
  CHECK(failure.kind == FailureKind::kSignal);
  CHECK(failure.node == "b");
  CHECK(failure.rank == 5U);
  CHECK(failure.local_rank == 1U);
  CHECK(failure.pid == 42);
  CHECK(failure.signal == SIGSEGV);
  CHECK_FALSE(failure.core_dumped);
  CHECK_FALSE(failure.exit_code.has_value());
  CHECK(failure.stderr_tail.size() == 4096);
  CHECK(failure.stderr_tail.ends_with("xend"));
  CHECK(failure.error_file == "{}");

  report.status.core_dumped = true;
  CHECK(to_failure(report, "b").core_dumped);
  report.error_file = std::string(70000, ' ');
  CHECK(to_failure(report, "b").error_file.empty());
  report.oom = true;
  CHECK(to_failure(report, "b").kind == FailureKind::kOom);

  report.pid = 0;
  report.status = {ExitStatus::Kind::kExecFailed, EACCES, false, "./t: Permission denied"};
  failure = to_failure(report, "b");
  CHECK(failure.kind == FailureKind::kSpawn);
  CHECK_FALSE(failure.pid.has_value());
  CHECK(failure.exit_code == 126);
  CHECK(failure.detail == "./t: Permission denied");
  CHECK(failed(not_started(ENOENT)).exit_code == 127);
}

}  // namespace muster
