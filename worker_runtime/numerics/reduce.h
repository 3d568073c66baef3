// SPDX-License-Identifier: Apache-2.0
//
// The order in which we add. A sum runs in 16 virtual lanes (element i belongs to lane i mod 16)
// and the lanes combine in one fixed tree, on every instruction set; long sums are cut into blocks
// that do not depend on the number of threads or ranks.
#pragma once

#include <cstddef>

#include "worker_runtime/numerics/hd.h"
#include "worker_runtime/numerics/math.h"

namespace muster::runtime::numerics {

inline constexpr int kLanes = 16;

// Elements of one partial of the gradient's squared norm, and the unit of all shard edges.
inline constexpr std::size_t kNormBlock = 16384;

// Rows that one partial of a column sum (bias, LayerNorm gradients) covers.
inline constexpr std::size_t kRowBlock = 64;

// The tree: lane l with l + 8, then l + 4, l + 2, l + 1.
template <class T>
MUSTER_HD T tree_sum(const T* lanes) {
  T sums[kLanes / 2];
  for (int l = 0; l < 8; ++l)
    sums[l] = lanes[l] + lanes[l + 8];
  for (int width = 4; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l)
      sums[l] = sums[l] + sums[l + width];
  }
  return sums[0];
}

// FP64 sum of squares of at most kNormBlock elements: the squares of FP32 numbers are exact.
MUSTER_HD double square_sum(const float* x, std::size_t count) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const double wide = static_cast<double>(x[i + l]);
      lanes[l] += wide * wide;
    }
  }
  for (std::size_t l = 0; i + l < count; ++l) {
    const double wide = static_cast<double>(x[i + l]);
    lanes[l] += wide * wide;
  }
  return tree_sum(lanes);
}

}  // namespace muster::runtime::numerics
