// SPDX-License-Identifier: Apache-2.0
#include "proto/base/time.h"

#include <array>
#include <charconv>
#include <cmath>

namespace muster {
namespace {

struct Unit {
  std::string_view suffix;
  double nanoseconds;
};

// "ms" stands before "s" and "m": the longest suffix that fits decides.
constexpr std::array<Unit, 6> kUnits{
    {{"ms", 1e6}, {"us", 1e3}, {"ns", 1.0}, {"h", 3600e9}, {"m", 60e9}, {"s", 1e9}}};
constexpr double kLongestNanoseconds = 10.0 * 365 * 24 * 3600e9;

}  // namespace

std::optional<Duration> parse_duration(std::string_view text) {
  double unit = 1e9;
  for (const Unit& candidate : kUnits) {
    if (text.ends_with(candidate.suffix)) {
      unit = candidate.nanoseconds;
      text.remove_suffix(candidate.suffix.size());
      break;
    }
  }
  if (text.empty() || text.front() == '+') return std::nullopt;
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  const double nanoseconds = value * unit;
  if (!(nanoseconds >= 0) || nanoseconds > kLongestNanoseconds) return std::nullopt;
  return Duration(static_cast<std::int64_t>(std::llround(nanoseconds)));
}

std::string format_measured(Duration duration) {
  using std::chrono::round;
  if (duration < 1min) return format_duration(round<std::chrono::milliseconds>(duration));
  return format_duration(round<std::chrono::seconds>(duration));
}

std::string format_duration(Duration duration) {
  const std::int64_t count = duration.count();
  constexpr std::array<std::pair<std::int64_t, std::string_view>, 6> kExact{
      {{3'600'000'000'000, "h"},
       {60'000'000'000, "m"},
       {1'000'000'000, "s"},
       {1'000'000, "ms"},
       {1'000, "us"},
       {1, "ns"}}};
  if (count == 0) return "0s";
  for (const auto& [unit, suffix] : kExact) {
    if (count % unit == 0) return std::to_string(count / unit).append(suffix);
  }
  return std::to_string(count) + "ns";
}

}  // namespace muster
