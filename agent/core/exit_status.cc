// SPDX-License-Identifier: Apache-2.0
#include "agent/core/exit_status.h"

#include "proto/base/check.h"

namespace muster::agent {
namespace {

// <bits/siginfo-consts.h>: part of the kernel's interface, the same on every Linux.
constexpr int kCldExited = 1;
constexpr int kCldKilled = 2;
constexpr int kCldDumped = 3;

constexpr std::size_t kTailBytes = 4096;

}  // namespace

ExitStatus decode_wait(int wait_code, int wait_status) {
  ExitStatus status;
  status.value = wait_status;
  switch (wait_code) {
    case kCldExited: status.kind = ExitStatus::Kind::kExited; return status;
    case kCldDumped: status.core_dumped = true; [[fallthrough]];
    case kCldKilled: status.kind = ExitStatus::Kind::kSignaled; return status;
    default: check_failed("code of an ended process", __FILE__, __LINE__);
  }
}

ExitStatus exec_failed(int error, const std::string& path, const std::string& reason) {
  ExitStatus status;
  status.kind = ExitStatus::Kind::kExecFailed;
  status.value = error;
  status.detail = path + ": " + reason;
  return status;
}

FailureKind failure_kind(const ExitStatus& status, bool oom) {
  MUSTER_CHECK(!status.succeeded());
  if (status.kind == ExitStatus::Kind::kExecFailed) return FailureKind::kSpawn;
  if (oom) return FailureKind::kOom;
  return status.kind == ExitStatus::Kind::kSignaled ? FailureKind::kSignal : FailureKind::kExit;
}

Failure to_failure(const WorkerExited& report, const NodeName& node) {
  Failure failure;
  failure.kind = failure_kind(report.status, report.oom);
  failure.node = node;
  failure.rank = report.rank;
  failure.local_rank = report.local_rank;
  if (report.pid != 0) failure.pid = report.pid;
  switch (report.status.kind) {
    case ExitStatus::Kind::kExited: failure.exit_code = report.status.value; break;
    case ExitStatus::Kind::kSignaled:
      failure.signal = report.status.value;
      failure.core_dumped = report.status.core_dumped;
      break;
    case ExitStatus::Kind::kExecFailed:
      failure.exit_code = spawn_exit_code(report.status.value);
      break;
  }
  failure.detail = report.status.detail;
  failure.stderr_tail = report.stderr_tail.size() <= kTailBytes
                            ? report.stderr_tail
                            : report.stderr_tail.substr(report.stderr_tail.size() - kTailBytes);
  failure.error_file = report.error_file;
  failure.secondary = report.secondary;
  failure.torn_down = report.torn_down;
  return failure;
}

int exit_code_of(const Outcome& outcome, ExitCodeMode mode) {
  if (mode == ExitCodeMode::kFlat && outcome.exit_class == ExitClass::kWorker) return 1;
  return outcome.exit_code;
}

}  // namespace muster::agent
