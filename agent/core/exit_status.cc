// SPDX-License-Identifier: Apache-2.0
#include "agent/core/exit_status.h"

#include "proto/base/check.h"

namespace muster::agent {
namespace {

// <bits/siginfo-consts.h>: part of the kernel's interface, the same on every Linux.
constexpr int kCldExited = 1;
constexpr int kCldKilled = 2;
constexpr int kCldDumped = 3;

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

int exit_code_of(const Outcome& outcome, ExitCodeMode mode) {
  if (mode == ExitCodeMode::kFlat && outcome.exit_class == ExitClass::kWorker) return 1;
  return outcome.exit_code;
}

}  // namespace muster::agent
