// SPDX-License-Identifier: Apache-2.0
//
// Apply functions of the options about workers' lines and log files.
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "agent/core/line_prefix.h"
#include "launcher/commands/option_values.h"
#include "launcher/commands/text.h"

namespace muster::launcher::apply {
namespace {

constexpr std::uint64_t kLeastRotation = 1000;

absl::Status bad(std::string_view value, std::string_view wanted) {
  return absl::InvalidArgumentError(cat("'", value, "' is not ", wanted));
}

// A number with its unit; nullopt for anything else.
std::optional<double> read_scaled(std::string_view text, std::string_view unit) {
  if (!text.ends_with(unit)) return std::nullopt;
  text.remove_suffix(unit.size());
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  if (!whole || !(value >= 0)) return std::nullopt;
  return value;
}

// "100MB", "1.5GiB". A plain number is no size: nobody means bytes.
std::optional<std::uint64_t> read_size(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 8> kUnits{{{"KB", 1e3},
                                                                       {"MB", 1e6},
                                                                       {"GB", 1e9},
                                                                       {"TB", 1e12},
                                                                       {"KiB", 0x1p10},
                                                                       {"MiB", 0x1p20},
                                                                       {"GiB", 0x1p30},
                                                                       {"TiB", 0x1p40}}};
  constexpr double kMost = 1e18;
  for (const auto& [unit, factor] : kUnits) {
    const std::optional<double> value = read_scaled(text, unit);
    if (!value) continue;
    const double bytes = std::round(*value * factor);
    if (bytes > kMost) return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
  }
  return std::nullopt;
}

// "7d", or a duration with its unit.
std::optional<Duration> read_age(const std::string& text) {
  constexpr double kMostDays = 3650;
  if (const std::optional<double> days = read_scaled(text, "d"); days && *days <= kMostDays) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*days * 24 * 3600));
  }
  if (text.empty() || (text.back() >= '0' && text.back() <= '9')) return std::nullopt;
  return parse_duration(text);
}

// torchrun's list: a comma parts, two of them are one in the text.
absl::Status read_filters(Text text, std::vector<std::string>& filters) {
  filters.clear();
  if (text.empty()) return absl::OkStatus();
  filters.emplace_back();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      filters.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      filters.back() += ',';
      ++i;
    } else {
      filters.emplace_back();
    }
  }
  for (const std::string& filter : filters) {
    if (filter.empty()) {
      return absl::InvalidArgumentError(
          cat("'", text, "' has an empty part, which every line contains (,, is a comma itself)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status log_prefix(Text text, RunOptions& options) {
  const std::string mistake = agent::line_prefix_mistake(text);
  if (!mistake.empty()) return absl::InvalidArgumentError(cat("'", text, "': ", mistake));
  options.log_prefix = text;
  return absl::OkStatus();
}

absl::Status local_ranks_filter(Text text, RunOptions& options) {
  options.shown_local_ranks.clear();
  if (text.empty()) return absl::OkStatus();
  for (const std::string_view part : split(text, ',')) {
    const auto rank = read_number<std::uint32_t>(trim(part));
    if (!rank) return bad(text, "a list of local ranks like 0,1");
    options.shown_local_ranks.insert(*rank);
  }
  return absl::OkStatus();
}

absl::Status stdout_filters(Text text, RunOptions& options) {
  return read_filters(text, options.stdout_filters);
}

absl::Status stderr_filters(Text text, RunOptions& options) {
  return read_filters(text, options.stderr_filters);
}

absl::Status log_rotate(Text text, RunOptions& options) {
  constexpr std::string_view kWanted = "off or SIZE[,N], like 100MB or 1GiB,5";
  options.log_rotation = {};
  if (text == "off") return absl::OkStatus();
  const std::size_t comma = text.find(',');
  const auto bytes = read_size(std::string_view(text).substr(0, comma));
  if (!bytes) return bad(text, kWanted);
  if (*bytes < kLeastRotation) return absl::InvalidArgumentError("must be at least 1KB");
  options.log_rotation.bytes = *bytes;
  if (comma == std::string::npos) return absl::OkStatus();
  constexpr std::uint32_t kMostKept = 1000;
  const auto kept = read_number<std::uint32_t>(std::string_view(text).substr(comma + 1));
  if (!kept || *kept > kMostKept) return bad(text, cat(kWanted, ", with N up to ", kMostKept));
  options.log_rotation.kept = *kept;
  return absl::OkStatus();
}

absl::Status log_keep(Text text, RunOptions& options) {
  options.log_keep = {};
  if (text == "all") return absl::OkStatus();
  if (const auto runs = read_number<std::uint32_t>(text)) {
    if (*runs == 0) {
      return absl::InvalidArgumentError("0 would keep no run, not even this one; all keeps every");
    }
    options.log_keep.runs = *runs;
    return absl::OkStatus();
  }
  if (const std::optional<Duration> age = read_age(text)) {
    if (*age == Duration{0}) return absl::InvalidArgumentError("must be more than zero");
    options.log_keep.age = *age;
    return absl::OkStatus();
  }
  options.log_keep.bytes = read_size(text);
  if (options.log_keep.bytes) return absl::OkStatus();
  return bad(text, "a number of runs, an age like 7d or 48h, a size like 10GB, or all");
}

}  // namespace muster::launcher::apply
