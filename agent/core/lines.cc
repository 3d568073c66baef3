// SPDX-License-Identifier: Apache-2.0
#include "agent/core/lines.h"

#include <array>
#include <charconv>

namespace muster::agent {
namespace {

std::string joined_names(const std::vector<NodeName>& names) {
  constexpr std::size_t kShown = 16;  // a line, not a list
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) {
    if (i > 0) text += ", ";
    text += names[i];
  }
  if (names.size() > kShown) text += ", " + std::to_string(names.size() - kShown) + " more";
  return text;
}

const char* why_waiting(Waiting::Why why) {
  switch (why) {
    case Waiting::Why::kBelowMin: return "waiting for nodes";
    case Waiting::Why::kLastCall: return "last call for more nodes";
    case Waiting::Why::kStopping: return "waiting for the old workers to stop";
    case Waiting::Why::kBackoff: return "waiting before the restart";
    case Waiting::Why::kPreparing: return "preparing the next generation";
    case Waiting::Why::kRecovering: return "the server was restarted; waiting for its nodes";
    case Waiting::Why::kLate: return "the job runs; this node comes in when it forms anew";
    case Waiting::Why::kSpare: return "the job runs; this node is a spare";
    case Waiting::Why::kQuarantined: return "this node is in quarantine";
    case Waiting::Why::kFenced: return "waiting until no lost node can run old workers";
  }
  return "waiting";
}

std::string how_it_failed(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kExit:
      return "exited with code " + std::to_string(failure.exit_code.value_or(1));
    case FailureKind::kSignal:
      return "was killed by " + signal_name(failure.signal.value_or(0)) +
             (failure.core_dumped ? " (core dumped)" : "");
    case FailureKind::kOom: return "was killed for memory (OOM)";
    case FailureKind::kHang: return "hangs";
    case FailureKind::kSpawn: return "could not be started";
    case FailureKind::kNodeLost: return "is lost";
  }
  return "failed";
}

}  // namespace

std::string seconds(Duration duration) {
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                          to_seconds(duration), std::chars_format::fixed, 2);
  return error == std::errc{} ? std::string(buffer.data(), end) : std::string("?");
}

std::string whole_seconds(Duration duration) {
  const Duration shown = duration > Duration{0} ? duration : Duration{0};
  return std::to_string(std::chrono::round<std::chrono::seconds>(shown).count()) + "s";
}

std::string describe(const LinkHistory& history) {
  const std::string place = history.endpoint.empty() ? "" : " at " + history.endpoint;
  std::string tries = std::to_string(history.tries) + (history.tries == 1 ? " try" : " tries");
  if (history.sent_away) {
    return "the server" + place + " does not take this node in yet: " + history.reason + " (" +
           tries + ")";
  }
  if (!history.reason.empty()) tries += ", last: " + history.reason;
  if (!history.speaks_muster) {
    return "what answers" + place + " does not speak Muster's protocol (" + tries + ")";
  }
  if (history.up) return "the server" + place + " is connected but does not answer";
  return "no Muster server answers" + place + " (" + tries + ")";
}

std::string describe(const Waiting& waiting) {
  std::string text = why_waiting(waiting.why);
  text += ": " + std::to_string(waiting.joined.size()) + " of ";
  text += std::to_string(waiting.min_nodes);
  if (waiting.max_nodes != waiting.min_nodes) text += ":" + std::to_string(waiting.max_nodes);
  text += waiting.max_nodes == 1 ? " node joined" : " nodes joined";
  if (!waiting.joined.empty()) text += " (" + joined_names(waiting.joined) + ")";
  if (waiting.missing > 0) text += ", " + std::to_string(waiting.missing) + " missing";
  if (waiting.remaining > Duration{0}) text += "; " + whole_seconds(waiting.remaining) + " left";
  if (!waiting.obstacle.empty()) text += "; " + waiting.obstacle;
  return text;
}

std::string describe(const Failure& failure) {
  std::string text = failure.rank ? "rank " + std::to_string(*failure.rank) : "node";
  if (failure.rank) {
    text += " (node " + failure.node;
    if (failure.pid) text += ", pid " + std::to_string(*failure.pid);
    text += ")";
  } else {
    text += " " + failure.node;
  }
  text += " " + how_it_failed(failure);
  if (!failure.detail.empty()) text += ": " + failure.detail;
  return text;
}

std::string lingering_line(std::uint32_t rank, const std::vector<Lingering>& processes,
                           Duration grace) {
  constexpr std::size_t kShown = 5;  // a line, not a list
  constexpr std::size_t kLongest = 60;
  std::string text = "rank " + std::to_string(rank) + " ended, processes that it started run on";
  for (std::size_t i = 0; i < processes.size() && i < kShown; ++i) {
    const Lingering& process = processes[i];
    text += (i == 0 ? ": " : ", ") + std::to_string(process.pid);
    if (process.command.empty()) continue;
    const bool long_one = process.command.size() > kLongest;
    text += " (" + process.command.substr(0, kLongest) + (long_one ? "..." : "") + ")";
  }
  if (processes.size() > kShown) {
    text += ", " + std::to_string(processes.size() - kShown) + " more";
  }
  return text + "; they have " + format_duration(grace) + " (--exit-grace)";
}

std::optional<std::string> console_line(const JobEvent& event) {
  const std::string generation = std::to_string(event.generation.value_or(kNoGeneration));
  if (const auto* failed = std::get_if<event::GenerationFailed>(&event.body)) {
    return "generation " + generation + " failed: " + describe(failed->first_cause);
  }
  if (const auto* restart = std::get_if<event::RestartScheduled>(&event.body)) {
    std::string text = restart->charged ? "restart " + std::to_string(restart->restarts_used) +
                                              " of " + std::to_string(restart->max_restarts)
                                        : std::string("re-forming, not charged");
    if (restart->delay > Duration{0}) text += " in " + seconds(restart->delay) + " s";
    return text;
  }
  if (const auto* back = std::get_if<event::Recovered>(&event.body)) {
    return "recovered in " + seconds(back->total) + " s: detect " + seconds(back->detect) +
           " stop " + seconds(back->stop) + " form " + seconds(back->form) + " spawn " +
           seconds(back->spawn);
  }
  if (const auto* lost = std::get_if<event::StateLost>(&event.body)) {
    return "the server lost its state: " + lost->reason;
  }
  if (const auto* recovered = std::get_if<event::ServerRecovered>(&event.body)) {
    return recovered->reason;
  }
  if (const auto* out = std::get_if<event::NodeQuarantined>(&event.body)) {
    return "node " + event.node.value_or("") + " sits out: " + out->reason;
  }
  return std::nullopt;
}

}  // namespace muster::agent
