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

constexpr std::size_t kLastLines = 8;
// In lower case; of sockets' and Python's, gloo's and NCCL's words.
constexpr std::array<std::string_view, 10> kLostPeer{
    "connection closed",    "connection reset",       "connection aborted", "connectionerror",
    "connectionreseterror", "connectionabortederror", "broken pipe",        "brokenpipeerror",
    "ncclremoteerror",      "remote process exit"};

Evidence evidence_of(bool signaled, int signal, std::string_view stderr_tail) {
  const bool reacts = signal == kAbort || signal == kPipe;
  if (signaled && !reacts) return Evidence::kCrash;
  if (speaks_of_a_lost_peer(stderr_tail)) return Evidence::kLostPeer;
  return reacts ? Evidence::kReaction : Evidence::kExit;
}

// The last `most` bytes of a tail that an agent should have cut itself.
std::string cut(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(text.size() - most);
}

int signal_in_code(int code) {
  return code > 128 ? code - 128 : 0;
}

}  // namespace

bool speaks_of_a_lost_peer(std::string_view stderr_tail) {
  std::size_t begin = stderr_tail.size();
  for (std::size_t line = 0; line < kLastLines && begin != 0; ++line) {
    const std::size_t end = stderr_tail.rfind('\n', begin - 1);
    begin = end == std::string_view::npos ? 0 : end;
  }
  std::string words(stderr_tail.substr(begin));
  for (char& letter : words) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return std::any_of(kLostPeer.begin(), kLostPeer.end(), [&](std::string_view phrase) {
    return words.find(phrase) != std::string::npos;
  });
}

Evidence evidence_of(const ExitStatus& status, std::string_view stderr_tail) {
  if (status.kind == ExitStatus::Kind::kExecFailed) return Evidence::kCrash;
  return evidence_of(status.kind == ExitStatus::Kind::kSignaled, ending_signal(status),
                     stderr_tail);
}

Evidence evidence_of(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kNodeLost:
    case FailureKind::kOom:
    case FailureKind::kSpawn: return Evidence::kCrash;
    case FailureKind::kSignal:
      return evidence_of(true, ending_signal(failure), failure.stderr_tail);
    case FailureKind::kHang: return Evidence::kExit;
    case FailureKind::kExit: return evidence_of(false, ending_signal(failure), failure.stderr_tail);
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
