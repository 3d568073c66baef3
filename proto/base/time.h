// SPDX-License-Identifier: Apache-2.0
//
// Time as the two machines see it: a point on the monotonic clock of one process, handed in by
// the shell. Nothing under a core/ folder reads a clock.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;  // NOLINT: durations read as 30s everywhere

// A point in time of one process. Instants of different processes do not compare.
struct Instant {
  Duration since_origin{0};

  friend constexpr auto operator<=>(const Instant&, const Instant&) = default;
  friend constexpr Instant operator+(Instant at, Duration by) { return {at.since_origin + by}; }
  friend constexpr Instant operator-(Instant at, Duration by) { return {at.since_origin - by}; }
  friend constexpr Duration operator-(Instant a, Instant b) {
    return a.since_origin - b.since_origin;
  }
};

// Seconds as a number for events and messages.
constexpr double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Earlier of two optional deadlines; nullopt means "none".
constexpr std::optional<Instant> earlier(std::optional<Instant> a, std::optional<Instant> b) {
  if (!a) return b;
  if (!b) return a;
  return *a < *b ? a : b;
}

// Reads "500ms", "30s", "5m", "1h", "1.5h" or plain seconds ("2", "0.25").
// Returns nullopt on anything else, on negative values and on values above 10 years.
std::optional<Duration> parse_duration(std::string_view text);

// The shortest of the forms above that reads back exactly: 500ms, 30s, 5m, 1h, 1.5s.
std::string format_duration(Duration duration);

// For people: measured times to the millisecond below a minute, to the second above.
std::string format_measured(Duration duration);

}  // namespace muster
