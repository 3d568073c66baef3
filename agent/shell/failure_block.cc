// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/failure_block.h"

#include <array>
#include <string_view>
#include <utility>

#include "agent/core/stop_ladder.h"
#include "agent/shell/error_file.h"
#include "proto/base/failure.h"

namespace muster::agent {

namespace {

constexpr std::size_t kVictimsShown = 16;
constexpr std::size_t kTailLines = 20;

std::string signal_meaning(int number) {
  static constexpr std::array<std::pair<int, std::string_view>, 18> kMeanings{
      {{1, "its terminal or its parent hung up"},
       {2, "interrupted"},
       {3, "told to quit"},
       {4, "illegal instruction"},
       {5, "a breakpoint, or a check of the compiler's, without a debugger"},
       {6, "it aborted itself"},
       {7, "bus error: memory behind a mapping is missing, often a full /dev/shm"},
       {8, "arithmetic error"},
       {9, "killed"},
       {10, "a signal for the program's own use, which it does not handle"},
       {11, "invalid memory access"},
       {12, "a signal for the program's own use, which it does not handle"},
       {13, "wrote to a pipe that nobody reads"},
       {14, "a timer that it had set itself"},
       {15, "told to terminate"},
       {24, "CPU time limit exceeded"},
       {25, "file size limit exceeded"},
       {31, "a system call that is not allowed here, often by a seccomp profile"}}};
  for (const auto& [value, meaning] : kMeanings) {
    if (value == number) return std::string(meaning);
  }
  return "";
}

std::string signal_words(int number) {
  const std::string meaning = signal_meaning(number);
  return signal_name(number) + (meaning.empty() ? "" : " (" + meaning + ")");
}

// Of a worker that it ended; muster's own SIGKILL is a victim's, and said to be so.
std::string ending_words(const Failure& failure) {
  const int number = failure.signal.value_or(0);
  if (number == kSigKill && !failure.torn_down) {
    return signal_name(number) + " (killed; its control group counts no out-of-memory kill)";
  }
  return signal_words(number) + (failure.core_dumped ? ", core dumped" : "");
}

// 143 and the like: what a shell makes of a child that a signal ended.
std::string exit_words(int code) {
  std::string words = "exit code " + std::to_string(code);
  if (code > 128 && code <= 128 + 64) {
    words += " (from a shell: " + signal_words(code - 128) + ")";
  }
  return words;
}

// Terminals obey control characters; a failure report does not pass them on.
std::string plain(std::string_view line) {
  std::string out(line);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = '?';
  }
  return out;
}

// The last kTailLines lines, each behind "    | ".
std::string quoted_tail(std::string_view tail) {
  while (tail.ends_with('\n') || tail.ends_with('\r'))
    tail.remove_suffix(1);
  std::size_t begin = tail.size();
  for (std::size_t lines = 0; begin > 0 && lines < kTailLines; ++lines) {
    const std::size_t end = tail.rfind('\n', begin - 1);
    begin = end == std::string_view::npos ? 0 : end;
  }
  if (begin > 0) tail.remove_prefix(begin + 1);
  std::string out;
  while (!tail.empty()) {
    const std::size_t end = tail.find('\n');
    std::string_view line = tail.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out += "    | " + plain(line) + "\n";
    tail.remove_prefix(end == std::string_view::npos ? tail.size() : end + 1);
  }
  return out;
}

std::string victim_words(const Failure& victim) {
  // What the kernel stops it for was its own doing, even if it had been told to stop.
  if (victim.torn_down && is_own_fault(victim.signal.value_or(0))) {
    return "while muster stopped it, " + failure_words(victim);
  }
  if (victim.torn_down) return "stopped by muster, " + failure_words(victim);
  return "failed after the first cause, " + failure_words(victim);
}

// Kinds whose detail is what the kernel said, of devices or of memory; failure_words() has that of
// the others.
bool detail_is_the_kernels(FailureKind kind) {
  return kind == FailureKind::kExit || kind == FailureKind::kSignal || kind == FailureKind::kOom;
}

std::string end_lines(int exit_code, const std::string& logs) {
  return "  exit code: " + std::to_string(exit_code) + "\n" +
         (logs.empty() ? "" : "  logs: " + logs + "\n");
}

std::string cause_lines(const Failure& cause) {
  std::string out = "  first cause: " + failure_place(cause) + ": " + failure_words(cause) + "\n";
  if (!cause.detail.empty() && detail_is_the_kernels(cause.kind)) {
    out += "  kernel: " + plain(cause.detail) + "\n";
  }
  if (cause.ambiguous) {
    out += cause.kind == FailureKind::kHang
               ? "  (which rank hangs is unknown; this one was killed for all)\n"
               : "  (other failures came too close to it to be sure)\n";
  }
  if (!cause.stacks.empty()) out += "  stacks: " + plain(cause.stacks) + "\n";
  if (cause.secondary) out += "  (it says itself that another rank's failure ended it)\n";
  const std::string message = error_message(cause.error_file);
  if (!message.empty()) out += "  it reported: " + plain(message) + "\n";
  const std::string tail = quoted_tail(cause.stderr_tail);
  if (!tail.empty()) out += "  last lines of its stderr:\n" + tail;
  return out;
}

}  // namespace

std::string failure_words(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kExit: return exit_words(failure.exit_code.value_or(0));
    case FailureKind::kSignal: return "ended by " + ending_words(failure);
    case FailureKind::kOom: return "killed because memory ran out";
    case FailureKind::kHang:
      return "made no progress" + (failure.detail.empty() ? "" : ": " + plain(failure.detail));
    case FailureKind::kSpawn:
      return "could not start" + (failure.detail.empty() ? "" : ": " + plain(failure.detail));
    case FailureKind::kNodeLost:
      return "lost" + (failure.detail.empty() ? "" : ": " + plain(failure.detail));
  }
  return "failed";
}

std::string failure_place(const Failure& failure) {
  if (!failure.rank) return "node " + plain(failure.node);
  std::string out = "rank " + std::to_string(*failure.rank) + " (node " + plain(failure.node);
  if (failure.local_rank) out += ", local rank " + std::to_string(*failure.local_rank);
  if (failure.pid && *failure.pid > 0) out += ", pid " + std::to_string(*failure.pid);
  return out + ")";
}

std::string unfit_block(const JobId& job, const NodeName& node, const std::string& text,
                        const Failure& cause, int exit_code, const std::string& logs) {
  return "muster: job " + plain(job) + " failed on node " + plain(node) + "\n  " + plain(text) +
         "\n" + cause_lines(cause) + end_lines(exit_code, logs);
}

std::string failure_block(const JobId& job, const Outcome& outcome, int exit_code,
                          const std::string& logs) {
  std::string out = "muster: job " + plain(job) + " failed\n";
  if (!outcome.text.empty()) out += "  " + plain(outcome.text) + "\n";
  if (outcome.first_cause) out += cause_lines(*outcome.first_cause);
  if (!outcome.victims.empty()) out += "  victims:\n";
  std::size_t shown = 0;
  for (const Failure& victim : outcome.victims) {
    if (shown++ == kVictimsShown) {
      out += "    and " + std::to_string(outcome.victims.size() - kVictimsShown) + " more\n";
      break;
    }
    out += "    " + failure_place(victim) + ": " + victim_words(victim) + "\n";
  }
  // More than are allowed were used where a window limits them; the text says how many in it.
  out += "  restarts used: " + std::to_string(outcome.restarts_used);
  if (outcome.restarts_used <= outcome.max_restarts) {
    out += " of " + std::to_string(outcome.max_restarts);
  }
  out += "\n";
  return out + end_lines(exit_code, logs);
}

}  // namespace muster::agent
