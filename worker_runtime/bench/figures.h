// SPDX-License-Identifier: Apache-2.0
//
// Sizes and figures of a benchmark of collectives, counted as nccl-tests count them.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime {

// "8", "64K", "128M", "1G" (powers of 1024, either case) -> bytes; nullopt: none of these, or more
// than kMostBytes.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40U;
std::optional<std::uint64_t> parse_bytes(std::string_view text);

// kF32, kBf16 and kF16 by the names of the configuration; and the bytes of one number.
std::optional<WireType> parse_wire_type(std::string_view text);
const char* wire_type_name(WireType type);
std::size_t wire_type_bytes(WireType type);

// How many numbers of `unit` bytes are added together, size after size: `least` bytes, `factor`
// times as many, and so on up to `most`; rounded down to whole numbers, each size once.
// REQUIRES: unit <= least <= most, factor >= 2.
std::vector<std::uint64_t> sweep_counts(std::uint64_t least, std::uint64_t most,
                                        std::uint64_t factor, std::uint64_t unit);

// REQUIRES: there is one; of an even number the mean of the middle two.
double median(std::vector<double> values);

// GB/s, 10^9 bytes each.
struct Bandwidth {
  double algorithm = 0;  // bytes over time, as whoever waits for the sum sees it
  double bus = 0;        // what the slowest link carries: times 2 (n - 1) / n for an all-reduce
};
Bandwidth all_reduce_bandwidth(std::uint64_t bytes, double time_us, int ranks);

}  // namespace muster::runtime
