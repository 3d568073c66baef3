// SPDX-License-Identifier: Apache-2.0
//
// Enumerators as the words that files, environment and console use.
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/events.h"
#include "proto/base/job.h"

namespace muster {

const char* to_word(FormReason reason) {
  switch (reason) {
    case FormReason::kStart: return "start";
    case FormReason::kWorkerFailure: return "worker_failure";
    case FormReason::kNodeLost: return "node_lost";
    case FormReason::kNodeJoined: return "node_joined";
    case FormReason::kNodeLeft: return "node_left";
    case FormReason::kRequested: return "requested";
    case FormReason::kPreempted: return "preempted";
    case FormReason::kStateLost: return "state_lost";
  }
  check_failed("FormReason in range", __FILE__, __LINE__);
}

const char* to_word(FailureKind kind) {
  switch (kind) {
    case FailureKind::kExit: return "exit";
    case FailureKind::kSignal: return "signal";
    case FailureKind::kHang: return "hang";
    case FailureKind::kOom: return "oom";
    case FailureKind::kSpawn: return "spawn";
    case FailureKind::kNodeLost: return "node_lost";
  }
  check_failed("FailureKind in range", __FILE__, __LINE__);
}

const char* to_word(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::kSucceeded: return "succeeded";
    case OutcomeKind::kFailed: return "failed";
    case OutcomeKind::kStopped: return "stopped";
    case OutcomeKind::kJoinTimeout: return "join_timeout";
    case OutcomeKind::kNoProgress: return "no_progress";
    case OutcomeKind::kServerLost: return "server_lost";
  }
  check_failed("OutcomeKind in range", __FILE__, __LINE__);
}

const char* to_word(ExitClass exit_class) {
  switch (exit_class) {
    case ExitClass::kSucceeded: return "succeeded";
    case ExitClass::kUsage: return "usage";
    case ExitClass::kWorker: return "worker";
    case ExitClass::kSignal: return "signal";
    case ExitClass::kStopped: return "stopped";
    case ExitClass::kJoinTimeout: return "join_timeout";
    case ExitClass::kServerLost: return "server_lost";
    case ExitClass::kUnfit: return "unfit";
    case ExitClass::kNoProgress: return "no_progress";
    case ExitClass::kInternal: return "internal";
  }
  check_failed("ExitClass in range", __FILE__, __LINE__);
}

const char* event_name(const EventBody& body) {
  static constexpr std::array kNames{"job_started",        "node_joined",       "node_left",
                                     "generation_formed",  "worker_started",    "worker_exited",
                                     "generation_running", "generation_failed", "restart_scheduled",
                                     "recovered",          "chaos_fired",       "chaos_unfired",
                                     "state_lost",         "server_recovered",  "node_quarantined",
                                     "server_leaving",     "job_finished"};
  static_assert(kNames.size() == std::variant_size_v<EventBody>);
  return kNames.at(body.index());
}

namespace {

// Linux on x86-64 and arm64 (signal(7)); the numbers are the same on both.
constexpr std::array<std::pair<int, std::string_view>, 31> kSignals{
    {{1, "HUP"},   {2, "INT"},     {3, "QUIT"},  {4, "ILL"},     {5, "TRAP"},  {6, "ABRT"},
     {7, "BUS"},   {8, "FPE"},     {9, "KILL"},  {10, "USR1"},   {11, "SEGV"}, {12, "USR2"},
     {13, "PIPE"}, {14, "ALRM"},   {15, "TERM"}, {16, "STKFLT"}, {17, "CHLD"}, {18, "CONT"},
     {19, "STOP"}, {20, "TSTP"},   {21, "TTIN"}, {22, "TTOU"},   {23, "URG"},  {24, "XCPU"},
     {25, "XFSZ"}, {26, "VTALRM"}, {27, "PROF"}, {28, "WINCH"},  {29, "IO"},   {30, "PWR"},
     {31, "SYS"}}};

}  // namespace

std::string limit_words(int error) {
  // The kernel's numbers, the same on every Linux we know.
  switch (error) {
    case 11: return "the limit of processes: ulimit -u, pids.max of the control group";  // EAGAIN
    case 12: return "out of memory";                                                     // ENOMEM
    case 23: return "the limit of open files of the whole machine: fs.file-max";         // ENFILE
    case 24: return "the limit of open files: ulimit -n";                                // EMFILE
    case 28: return "the disk is full";                                                  // ENOSPC
    default: return "";
  }
}

int spawn_exit_code(int error) {
  constexpr int kNoEntry = 2;  // ENOENT
  if (error == kNoEntry) return 127;
  return limit_words(error).empty() ? 126 : 70;
}

std::string signal_name(int number) {
  for (const auto& [value, name] : kSignals) {
    if (value == number) return std::string("SIG").append(name);
  }
  return "SIG" + std::to_string(number);
}

std::optional<int> signal_number(const std::string& name) {
  std::string_view text = name;
  if (text.starts_with("SIG")) text.remove_prefix(3);
  for (const auto& [value, known] : kSignals) {
    if (known == text) return value;
  }
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (number < 1 || number > 64) return std::nullopt;
  return number;
}

}  // namespace muster
