// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/data/order.h"

#include <bit>

#include "proto/base/check.h"
#include "proto/base/rng.h"

namespace muster::runtime {
namespace {

// Four rounds suffice for large domains; small ones mix worse, and rounds cost nothing here.
constexpr std::uint64_t kRounds = 8;

std::uint64_t feistel(std::uint64_t value, unsigned half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = Rng::mix(key + round * 0x9e3779b97f4a7c15U + Rng::mix(right + 1));
    const std::uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return (left << half_bits) | right;
}

}  // namespace

std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed,
                       std::uint64_t epoch) {
  MUSTER_CHECK(index < count);
  MUSTER_CHECK(count <= std::uint64_t{1} << 62U);
  const auto bits = static_cast<unsigned>(std::bit_width(count - 1));
  const unsigned half_bits = bits < 2 ? 1 : (bits + 1) / 2;
  const std::uint64_t key =
      Rng::mix(Rng::mix(seed ^ static_cast<std::uint64_t>(kOrderVersion)) + epoch);
  std::uint64_t value = index;
  do {
    value = feistel(value, half_bits, key);
  } while (value >= count);
  return value;
}

}  // namespace muster::runtime
