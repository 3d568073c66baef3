// SPDX-License-Identifier: Apache-2.0
#include "proto/base/failure.h"

#include <algorithm>
#include <array>
#include <string>

#include "proto/base/check.h"

namespace muster {
namespace {

// signal(7), the same numbers on x86-64 and arm64.
constexpr int kHup = 1;
constexpr int kInt = 2;
constexpr int kQuit = 3;
constexpr int kIll = 4;
constexpr int kTrap = 5;
constexpr int kAbort = 6;
constexpr int kBus = 7;
constexpr int kFpe = 8;
constexpr int kKill = 9;
constexpr int kSegv = 11;
constexpr int kPipe = 13;
constexpr int kTerm = 15;
constexpr int kSys = 31;

constexpr std::size_t kMostTail = 4096;
constexpr std::size_t kMostErrorFile = 65536;

Evidence evidence_of(bool signaled, int signal) {
  if (signal == kAbort || signal == kPipe) return Evidence::kReaction;
  return signaled ? Evidence::kCrash : Evidence::kExit;
}

// The last `most` bytes of a tail that an agent should have cut itself.
std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(text.size() - most);
}

int signal_in_code(int code) {
  return code > 128 ? code - 128 : 0;
}

}  // namespace

Evidence evidence_of(const ExitStatus& status) {
  if (status.kind == ExitStatus::Kind::kExecFailed) return Evidence::kCrash;
  return evidence_of(status.kind == ExitStatus::Kind::kSignaled, ending_signal(status));
}

Evidence evidence_of(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kNodeLost:
    case FailureKind::kOom:
    case FailureKind::kSpawn: return Evidence::kCrash;
    case FailureKind::kSignal: return evidence_of(true, ending_signal(failure));
    case FailureKind::kHang:
    case FailureKind::kExit: return evidence_of(false, ending_signal(failure));
  }
  check_failed("FailureKind in range", __FILE__, __LINE__);
}

int ending_signal(const ExitStatus& status) {
  if (status.kind == ExitStatus::Kind::kSignaled) return status.value;
  return status.kind == ExitStatus::Kind::kExited ? signal_in_code(status.value) : 0;
}

int ending_signal(const Failure& failure) {
  if (failure.kind == FailureKind::kSignal) return failure.signal.value_or(0);
  return failure.kind == FailureKind::kExit ? signal_in_code(failure.exit_code.value_or(0)) : 0;
}

bool is_stop_signal(int signal) {
  return signal == kHup || signal == kInt || signal == kQuit || signal == kTerm;
}

bool is_own_fault(int signal) {
  constexpr std::array kFaults{kIll, kTrap, kAbort, kBus, kFpe, kSegv, kSys};
  return std::find(kFaults.begin(), kFaults.end(), signal) != kFaults.end();
}

bool may_follow_a_lost_peer(const Failure& failure) {
  if (failure.kind != FailureKind::kSignal && failure.kind != FailureKind::kExit) return false;
  const int signal = ending_signal(failure);
  return signal == kAbort || (signal != kKill && !is_own_fault(signal));
}

Failure to_failure(const WorkerExited& report, const NodeName& node) {
  MUSTER_CHECK(!report.status.succeeded() || report.torn_down);
  Failure failure;
  failure.node = node;
  failure.rank = report.rank;
  failure.local_rank = report.local_rank;
  if (report.pid > 0) failure.pid = report.pid;
  failure.detail = report.status.detail;
  failure.stderr_tail = cut(report.stderr_tail, kMostTail);
  if (report.error_file.size() <= kMostErrorFile) failure.error_file = report.error_file;
  failure.secondary = report.secondary;
  failure.torn_down = report.torn_down;
  failure.stacks = report.stacks;
  switch (report.status.kind) {
    case ExitStatus::Kind::kExited:
      failure.kind = FailureKind::kExit;
      failure.exit_code = report.status.value;
      break;
    case ExitStatus::Kind::kSignaled:
      failure.kind = report.oom ? FailureKind::kOom : FailureKind::kSignal;
      failure.signal = report.status.value;
      failure.core_dumped = report.status.core_dumped;
      break;
    case ExitStatus::Kind::kExecFailed:
      failure.kind = FailureKind::kSpawn;
      failure.exit_code = spawn_exit_code(report.status.value);
      break;
  }
  if (report.hang) {
    failure.kind = FailureKind::kHang;
    failure.ambiguous = report.hang->ambiguous;
    failure.signal.reset();  // it is ours
    failure.core_dumped = false;
  }
  return failure;
}

}  // namespace muster
