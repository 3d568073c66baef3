// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/option_values.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <set>
#include <utility>

#include "launcher/commands/scheduler_facts.h"
#include "launcher/commands/text.h"

namespace muster::launcher::apply {
namespace {

constexpr std::uint32_t kMostCauses = 1000;
constexpr std::size_t kLongestName = 200;  // job and node names become parts of paths

absl::Status bad(std::string_view value, std::string_view wanted) {
  return absl::InvalidArgumentError(cat("'", value, "' is not ", wanted));
}

absl::Status read_count(std::string_view text, std::uint32_t& value) {
  const auto count = read_number<std::uint32_t>(text);
  if (!count) return bad(text, "a number");
  value = *count;
  return absl::OkStatus();
}

// Names stand in paths, environment variables and JSON lines.
absl::Status check_name(std::string_view name, bool slash_allowed) {
  if (name.size() > kLongestName) {
    return absl::InvalidArgumentError(cat("is longer than ", kLongestName, " bytes"));
  }
  if (name == "." || name == "..") return bad(name, "a name");
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      return absl::InvalidArgumentError("contains a control character");
    }
    if (c == '/' && !slash_allowed) return absl::InvalidArgumentError("contains a '/'");
  }
  return absl::OkStatus();
}

absl::Status listen_at(const std::string& text, std::optional<Endpoint>& where) {
  where.reset();
  if (text.empty()) return absl::OkStatus();
  absl::StatusOr<Endpoint> endpoint = parse_listen(text);
  if (!endpoint.ok()) return endpoint.status();
  where = *std::move(endpoint);
  return absl::OkStatus();
}

template <typename Value, std::size_t kCount>
absl::Status choose(std::string_view text,
                    const std::array<std::pair<std::string_view, Value>, kCount>& choices,
                    Value& value) {
  std::string known;
  for (const auto& [word, meaning] : choices) {
    if (text == word) {
      value = meaning;
      return absl::OkStatus();
    }
    known += cat(known.empty() ? "" : ", ", word);
  }
  return bad(text, cat("one of ", known));
}

// "0", "3" or "0:3,1:1,12:2".
absl::Status read_streams(const std::string& text, StreamChoice& choice) {
  constexpr std::string_view kWanted = "0, 1, 2, 3 or a map like 0:3,1:1";
  StreamChoice result;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const auto bits =
        read_number<unsigned>(colon == std::string_view::npos ? part : part.substr(colon + 1));
    if (!bits || *bits > 3) return bad(text, kWanted);
    if (colon == std::string_view::npos) {
      if (part.size() != text.size()) return bad(text, kWanted);
      result.everyone = *bits;
      continue;
    }
    const auto rank = read_number<std::uint32_t>(part.substr(0, colon));
    if (!rank) return bad(text, kWanted);
    if (!result.by_rank.emplace(*rank, *bits).second) {
      return absl::InvalidArgumentError(cat("'", text, "' names ", *rank, " twice"));
    }
  }
  choice = std::move(result);
  return absl::OkStatus();
}

}  // namespace

absl::Status read_switch(Text text, bool& value) {
  for (const std::string_view word : {"1", "true", "yes", "on"}) {
    if (text == word) {
      value = true;
      return absl::OkStatus();
    }
  }
  for (const std::string_view word : {"0", "false", "no", "off"}) {
    if (text == word) {
      value = false;
      return absl::OkStatus();
    }
  }
  return bad(text, "0 or 1");
}

absl::Status read_duration(Text text, bool zero_allowed, Duration& value) {
  const std::optional<Duration> duration = parse_duration(text);
  if (!duration) return bad(text, "a duration like 500ms, 30s, 5m, 1h or 2.5");
  if (!zero_allowed && *duration == Duration{0}) {
    return absl::InvalidArgumentError("must be more than zero");
  }
  value = *duration;
  return absl::OkStatus();
}

absl::Status nnodes(Text text, RunOptions& options) {
  constexpr std::string_view kWanted = "N or MIN:MAX with 0 < MIN <= MAX";
  const std::size_t colon = text.find(':');
  const std::string_view whole = text;
  const auto low = read_number<std::uint32_t>(whole.substr(0, colon));
  const auto high =
      colon == std::string::npos ? low : read_number<std::uint32_t>(whole.substr(colon + 1));
  if (!low || !high || *low == 0 || *low > *high) return bad(text, kWanted);
  options.min_nodes = *low;
  options.max_nodes = *high;
  return absl::OkStatus();
}

absl::Status nproc(Text text, RunOptions& options) {
  if (text == "xpu") {
    return absl::InvalidArgumentError("'xpu' is not known here; give the number of workers");
  }
  if (text != "auto" && text != "gpu" && text != "cpu") {
    const auto count = read_number<std::uint32_t>(text);
    if (!count || *count == 0) return bad(text, "auto, gpu, cpu or a number above zero");
    constexpr std::uint32_t kMost = 4096;
    if (*count > kMost) {
      return absl::InvalidArgumentError(cat("'", text, "' is more than ", kMost));
    }
  }
  options.nproc = text;
  return absl::OkStatus();
}

absl::Status job_id(Text text, RunOptions& options) {
  if (text.empty()) return absl::InvalidArgumentError("is empty");
  options.job_id = text;
  return check_name(text, false);
}

absl::Status max_restarts(Text text, RunOptions& options) {
  const std::size_t slash = text.find('/');
  const auto count = read_number<std::uint32_t>(std::string_view(text).substr(0, slash));
  if (!count) return bad(text, "N or N/WINDOW, like 3 or 3/1h");
  options.policy.max_restarts = *count;
  options.policy.max_restarts_window.reset();
  if (slash == std::string::npos) return absl::OkStatus();
  Duration window{0};
  const absl::Status read = read_duration(text.substr(slash + 1), false, window);
  if (read.ok()) options.policy.max_restarts_window = window;
  return read;
}

absl::Status max_node_losses(Text text, RunOptions& options) {
  return read_count(text, options.policy.max_node_losses);
}

absl::Status max_no_progress(Text text, RunOptions& options) {
  return read_count(text, options.policy.max_no_progress);
}

absl::Status quarantine(Text text, RunOptions& options) {
  options.policy.quarantine = {};
  if (text == "off") return absl::OkStatus();
  const std::size_t slash = text.find('/');
  const std::size_t comma = text.find(',', slash == std::string::npos ? 0 : slash);
  Quarantine rule;
  const auto causes = read_number<std::uint32_t>(std::string_view(text).substr(0, slash));
  if (slash == std::string::npos || comma == std::string::npos || !causes || *causes == 0 ||
      *causes > kMostCauses) {
    return bad(text, "off or N/WINDOW,COOLDOWN, like 3/1h,10m");
  }
  rule.causes = *causes;
  absl::Status status =
      read_duration(text.substr(slash + 1, comma - slash - 1), false, rule.window);
  if (status.ok()) status = read_duration(text.substr(comma + 1), false, rule.cooldown);
  if (status.ok()) options.policy.quarantine = rule;
  return status;
}

absl::Status spares(Text text, RunOptions& options) {
  options.policy.max_spares.reset();
  if (text == "auto") return absl::OkStatus();
  const auto count =
      text == "none" ? std::optional<std::uint32_t>(0) : read_number<std::uint32_t>(text);
  if (!count) return bad(text, "auto, none or a number");
  options.policy.max_spares = *count;
  return absl::OkStatus();
}

absl::Status fence(Text text, RunOptions& options) {
  static constexpr std::array<std::pair<std::string_view, Fence>, 2> kWords{
      {{"fast", Fence::kFast}, {"strict", Fence::kStrict}}};
  return choose(text, kWords, options.policy.fence);
}

absl::Status grow(Text text, RunOptions& options) {
  static constexpr std::array<std::pair<std::string_view, Grow>, 3> kWords{
      {{"now", Grow::kNow}, {"checkpoint", Grow::kCheckpoint}, {"never", Grow::kNever}}};
  return choose(text, kWords, options.policy.grow);
}

absl::Status backend(Text text, RunOptions& /*options*/) {
  if (text == "static" || text == "c10d") return absl::OkStatus();
  if (text.starts_with("etcd")) {
    return absl::InvalidArgumentError(
        cat("'", text,
            "' is not supported: leave it out, or use c10d; the server is Muster's own, "
            "and `muster rendezvous` runs it on a machine of its own"));
  }
  return bad(text, "static or c10d (both mean Muster's own rendezvous)");
}

absl::Status rdzv_conf(Text text, RunOptions& options) {
  options.rdzv_conf.clear();
  if (text.empty()) return absl::OkStatus();
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      return bad(part, "KEY=VALUE");
    }
    options.rdzv_conf[std::string(part.substr(0, equals))] = std::string(part.substr(equals + 1));
  }
  return absl::OkStatus();
}

absl::Status master_port(Text text, RunOptions& options) {
  const auto port = read_number<std::uint16_t>(text);
  if (!port) return bad(text, "a port from 0 to 65535");
  options.master_port = *port;
  return absl::OkStatus();
}

absl::Status master_port_range(Text text, RunOptions& options) {
  const std::size_t dash = text.find('-');
  const std::string_view whole = text;
  const auto low = read_number<std::uint16_t>(whole.substr(0, dash));
  const auto high =
      dash == std::string::npos ? low : read_number<std::uint16_t>(whole.substr(dash + 1));
  if (!low || !high || *low == 0 || *low > *high) {
    return bad(text, "a port or A-B with 0 < A <= B <= 65535");
  }
  options.master_port_low = *low;
  options.master_port_high = *high;
  return absl::OkStatus();
}

absl::Status node_rank(Text text, RunOptions& options) {
  const auto rank = read_number<std::uint32_t>(text);
  if (!rank) return bad(text, "a number from 0");
  options.node_rank = *rank;
  return absl::OkStatus();
}

absl::Status node_name(Text text, RunOptions& options) {
  options.node_name = text;
  return check_name(text, true);
}

absl::Status http(Text text, RunOptions& options) {
  return listen_at(text, options.http);
}

absl::Status metrics_addr(Text text, RunOptions& options) {
  return listen_at(text, options.metrics_addr);
}

absl::Status advertise_addr(Text text, RunOptions& options) {
  // Without brackets everywhere inside: they belong to host:port texts only.
  const bool bracketed =
      text.starts_with('[') && text.ends_with(']') && text.find(':') != std::string::npos;
  options.advertise_addr = bracketed ? text.substr(1, text.size() - 2) : text;
  if (!is_host(options.advertise_addr)) return bad(text, "an address or a host's name");
  return absl::OkStatus();
}

absl::Status stop_signal(Text text, RunOptions& options) {
  options.stop_signal.reset();
  if (text == "same") return absl::OkStatus();
  const std::optional<int> number = signal_number(text);
  if (!number) return bad(text, "a signal's name, or same");
  options.stop_signal = *number;
  return absl::OkStatus();
}

absl::Status master_port_hold(Text text, RunOptions& options) {
  static constexpr std::array<std::pair<std::string_view, bool>, 2> kWords{
      {{"yes", true}, {"no", false}}};
  return choose(text, kWords, options.master_port_hold);
}

absl::Status role(Text text, RunOptions& options) {
  if (text.empty()) return absl::InvalidArgumentError("the name is empty");
  options.role = text;
  return absl::OkStatus();
}

absl::Status hang_timeout(Text text, RunOptions& options) {
  constexpr int kFirst = 10;  // times as long before the first report
  const std::vector<std::string_view> words = split(text, ',');
  Duration timeout{0};
  absl::Status status = read_duration(std::string(words[0]), false, timeout);
  Duration first = timeout > Duration::max() / kFirst ? Duration::max() : timeout * kFirst;
  if (status.ok() && words.size() > 1) {
    status = read_duration(std::string(words[1]), false, first);
  }
  if (!status.ok()) return status;
  if (words.size() > 2) {
    return absl::InvalidArgumentError(cat("'", text, "' is not D or D,FIRST, two durations"));
  }
  options.hang_timeout = timeout;
  options.hang_first = first;
  return absl::OkStatus();
}

absl::Status silence_timeout(Text text, RunOptions& options) {
  Duration timeout{0};
  absl::Status status = read_duration(text, false, timeout);
  if (status.ok()) options.silence_timeout = timeout;
  return status;
}

absl::Status numa_binding(Text text, RunOptions& options) {
  static constexpr std::array<std::pair<std::string_view, NumaBinding>, 5> kWords{
      {{"none", NumaBinding::kNone},
       {"node", NumaBinding::kNode},
       {"socket", NumaBinding::kSocket},
       {"exclusive", NumaBinding::kExclusive},
       {"core-complex", NumaBinding::kCoreComplex}}};
  return choose(text, kWords, options.numa_binding);
}

// Its facts are found before (option_rules.cc).
absl::Status scheduler(Text text, RunOptions& /*options*/) {
  const auto& names = scheduler_names();
  const bool known = text == "auto" || text == "none" ||
                     std::find(names.begin(), names.end(), text) != names.end();
  if (known) return absl::OkStatus();
  std::string all;
  for (const std::string_view name : names)
    all += cat(", ", name);
  return absl::InvalidArgumentError(cat("'", text, "' is not one of auto, none", all));
}

absl::Status keep_fds(Text text, RunOptions& options) {
  std::set<int> kept;
  for (const std::string_view word : split(text, ',')) {
    const std::optional<int> fd = read_number<int>(word);
    if (!fd || *fd < 0) {
      return absl::InvalidArgumentError(cat("'", word, "' is not the number of a descriptor"));
    }
    if (*fd < 3) {
      return absl::InvalidArgumentError(
          cat(*fd, " is one of the worker's own streams; see --stdin and --console"));
    }
    kept.insert(*fd);
  }
  options.keep_fds.assign(kept.begin(), kept.end());
  return absl::OkStatus();
}

absl::Status stop_scope(Text text, RunOptions& options) {
  static constexpr std::array<std::pair<std::string_view, bool>, 2> kWords{
      {{"leader", false}, {"group", true}}};
  return choose(text, kWords, options.stop_whole_group);
}

absl::Status exit_grace(Text text, RunOptions& options) {
  Duration grace{0};
  absl::Status status = read_duration(text, true, grace);
  if (status.ok()) options.exit_grace = grace;
  return status;
}

absl::Status forward_signals(Text text, RunOptions& options) {
  options.forward_signals.clear();
  if (text == "none") return absl::OkStatus();
  for (const std::string_view name : split(text, ',')) {
    const std::optional<int> number = signal_number(std::string(name));
    if (!number) return bad(name, "a signal's name");
    // Those stop the job, cannot be caught, or are the launcher's own news of its children.
    for (const int taken : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGKILL, SIGSTOP, SIGCHLD}) {
      if (*number == taken) {
        return absl::InvalidArgumentError(
            cat(signal_name(taken), " cannot be forwarded without stopping"));
      }
    }
    const auto& known = options.forward_signals;
    if (std::find(known.begin(), known.end(), *number) == known.end()) {
      options.forward_signals.push_back(*number);
    }
  }
  return absl::OkStatus();
}

absl::Status exit_code(Text text, RunOptions& options) {
  constexpr std::array<std::pair<std::string_view, bool>, 2> kChoices{
      {{"worker", false}, {"flat", true}}};
  return choose(text, kChoices, options.flat_exit_code);
}

absl::Status stdin_choice(Text text, RunOptions& options) {
  if (text == "none" || text == "all") {
    options.stdin_choice = text == "all" ? StdinChoice::kAll : StdinChoice::kNone;
    return absl::OkStatus();
  }
  const auto rank = read_number<std::uint32_t>(text);
  if (!rank) return bad(text, "a local rank, none or all");
  options.stdin_choice = StdinChoice::kLocalRank;
  options.stdin_local_rank = *rank;
  return absl::OkStatus();
}

absl::Status console(Text text, RunOptions& options) {
  constexpr std::array<std::pair<std::string_view, ConsoleChoice>, 7> kChoices{
      {{"auto", ConsoleChoice::kAuto},
       {"prefixed", ConsoleChoice::kPrefixed},
       {"lines", ConsoleChoice::kLines},
       {"raw", ConsoleChoice::kRaw},
       {"pty", ConsoleChoice::kPty},
       {"rank0", ConsoleChoice::kRank0},
       {"none", ConsoleChoice::kNone}}};
  return choose(text, kChoices, options.console);
}

absl::Status redirects(Text text, RunOptions& options) {
  return read_streams(text, options.redirects);
}

absl::Status tee(Text text, RunOptions& options) {
  return read_streams(text, options.tee);
}

absl::Status log_level(Text text, RunOptions& options) {
  constexpr std::array<std::pair<std::string_view, LogLevel>, 4> kChoices{
      {{"debug", LogLevel::kDebug},
       {"info", LogLevel::kInfo},
       {"warning", LogLevel::kWarning},
       {"error", LogLevel::kError}}};
  return choose(text, kChoices, options.log_level);
}

}  // namespace muster::launcher::apply
