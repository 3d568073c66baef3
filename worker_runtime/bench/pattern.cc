// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/pattern.h"

#include <algorithm>

#include "proto/base/check.h"

namespace muster::runtime {
namespace {

// Up to here every integer is a number of the type.
std::uint64_t largest_exact(WireType type) {
  switch (type) {
    case WireType::kBf16: return 256;
    case WireType::kF16: return 2048;
    default: MUSTER_CHECK(type == WireType::kF32); return std::uint64_t{1} << 24U;
  }
}

// SplitMix64's finaliser.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EB;
  return x ^ (x >> 31U);
}

}  // namespace

// The magnitudes of all ranks together stay below largest_exact. Where there are more ranks than
// that, each adds something to some places only.
float Pattern::value(int rank, int size, WireType type, std::size_t place) {
  const std::uint64_t exact = largest_exact(type);
  const auto ranks = static_cast<std::uint64_t>(size);
  const auto own = static_cast<std::uint64_t>(rank);
  const std::uint64_t stride = (ranks + exact - 1) / exact;
  if ((own + place) % stride != 0) return 0;
  const std::uint64_t most = std::clamp<std::uint64_t>(exact / ranks, 1, 99);
  const std::uint64_t bits = mixed(own * kPeriod + place);
  const auto magnitude = static_cast<float>(1 + (bits >> 1U) % most);
  return (bits & 1U) != 0 ? -magnitude : magnitude;
}

Pattern::Pattern(int rank, int size, WireType type) : own_(kPeriod), sum_(kPeriod) {
  MUSTER_CHECK(rank >= 0 && rank < size);
  for (int r = 0; r < size; ++r) {
    for (std::size_t at = 0; at < kPeriod; ++at)
      sum_[at] += value(r, size, type, at);
  }
  for (std::size_t at = 0; at < kPeriod; ++at)
    own_[at] = value(rank, size, type, at);
}

std::vector<float> Pattern::repeated(std::size_t periods) const {
  std::vector<float> all;
  all.reserve(periods * kPeriod);
  for (std::size_t i = 0; i < periods; ++i)
    all.insert(all.end(), own_.begin(), own_.end());
  return all;
}

std::uint64_t Pattern::count_wrong(std::span<const float> results, std::size_t first,
                                   std::uint64_t round) const {
  std::uint64_t wrong = 0;
  std::size_t at = place(first, round);
  for (const float result : results) {
    if (!(result == sum_[at])) ++wrong;  // so that what is no number is wrong too
    if (++at == kPeriod) at = 0;
  }
  return wrong;
}

}  // namespace muster::runtime
