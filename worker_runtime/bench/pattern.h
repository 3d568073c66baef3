// SPDX-License-Identifier: Apache-2.0
//
// Numbers to add that tell a right sum from a wrong one. They are small integers, such that no sum
// of any of them over the ranks needs rounding in the type that travels: whatever order a
// collective adds in, there is one right result, to the bit. Every rank's differ, and they repeat
// with a prime period, so that a part that lands in another's place shows.
//
// Each round begins elsewhere in the period: what an earlier round left is wrong in this one.
//
// Thread rule: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime {

class Pattern {
 public:
  static constexpr std::size_t kPeriod = 4099;

  Pattern(int rank, int size, WireType type);

  // What a rank has at a place of the period.
  static float value(int rank, int size, WireType type, std::size_t place);

  // Of this rank, and the sum over all, of element `index` in `round`.
  float own(std::size_t index, std::uint64_t round) const { return own_[place(index, round)]; }
  float sum(std::size_t index, std::uint64_t round) const { return sum_[place(index, round)]; }

  // Where a round begins in the period.
  static std::size_t start(std::uint64_t round) { return place(0, round); }
  // This rank's numbers, `periods` times one after the other.
  std::vector<float> repeated(std::size_t periods) const;

  // How many of `results`, which are the sums of `round` from element `first` on, are not the
  // right ones.
  std::uint64_t count_wrong(std::span<const float> results, std::size_t first,
                            std::uint64_t round) const;

 private:
  static std::size_t place(std::size_t index, std::uint64_t round) {
    return (index + round) % kPeriod;
  }
  std::vector<float> own_, sum_;  // (kPeriod)
};

}  // namespace muster::runtime
