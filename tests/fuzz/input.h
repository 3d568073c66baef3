// SPDX-License-Identifier: Apache-2.0
//
// The bytes of one fuzz input as a stream of decisions. Every draw takes a few bytes, so that a
// changed byte changes one decision; past the end all draws are zero, so that every input means
// something and a shorter one is a simpler one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/time.h"

namespace muster::fuzz {

// A broken promise ends the process; that is how a fuzzer notices.
inline void expect(bool holds, std::string_view promise, std::string_view detail = "") {
  if (holds) return;
  std::fprintf(stderr, "fuzz: broken promise: %.*s%s%.*s\n", static_cast<int>(promise.size()),
               promise.data(), detail.empty() ? "" : ": ", static_cast<int>(detail.size()),
               detail.data());
  std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }

  std::uint8_t byte() { return empty() ? std::uint8_t{0} : *at_++; }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      value = value << 8U | byte();
    return value;
  }
  // In [0, bound), from one byte where that is enough. REQUIRES: 0 < bound <= 65536.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(number(bound <= 256 ? 1 : 2) % bound);
  }
  bool coin() { return (byte() & 1U) != 0; }
  bool one_in(std::uint32_t many) { return below(many) == many - 1; }

  // Everything that is left.
  std::string rest() {
    std::string bytes(reinterpret_cast<const char*>(at_), static_cast<std::size_t>(end_ - at_));
    at_ = end_;
    return bytes;
  }

  // Numbers at which things break more often than at others.
  std::uint64_t edge() {
    switch (below(8)) {
      case 0: return below(256);
      case 1: return 0ULL - below(256);
      case 2: return (1ULL << below(64)) - 1 + below(3);
      case 3: return (1ULL << 20U) - 2 + below(5);  // ranks
      case 4: return (1ULL << 16U) - 2 + below(5);  // slots, ports
      case 5: return 253402300800000000ULL - 2 + below(5);
      case 6: return number(4);
      default: return number(8);
    }
  }
  // From nothing to years.
  Duration duration() {
    switch (below(8)) {
      case 0: return 0s;
      case 1: return 1ns * static_cast<Duration::rep>(1 + below(256));
      case 2: return std::chrono::hours(24 * 3660);
      case 3: return 1h * static_cast<Duration::rep>(1 + below(256));
      case 4: return 1ms * static_cast<Duration::rep>(1 + below(256));
      default: return 100ms * static_cast<Duration::rep>(1 + below(256));
    }
  }
  // Some time after `now`, or when `due` says, but no later than `last`.
  Instant later(Instant now, std::optional<Instant> due, Instant last) {
    switch (below(6)) {
      case 0: now = std::max(now, due.value_or(now)); break;
      case 1: now = now + duration(); break;
      case 2: now = now + 10s; break;
      case 3: now = now + 1s; break;
      default: now = now + 50ms;
    }
    return std::min(now, last);
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

}  // namespace muster::fuzz
