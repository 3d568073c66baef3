// SPDX-License-Identifier: Apache-2.0
//
// Sums over rows, for the gradients of biases and LayerNorm weights: partial sums of blocks of
// numerics::kRowBlock rows, then the partials in order, so that no result depends on the launch.
// The bits are those of cpu/kernels.
#pragma once

#include "worker_runtime/cuda/kernels/elementwise.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime::cuda {

inline std::size_t row_blocks(std::size_t rows) {
  return (rows + numerics::kRowBlock - 1) / numerics::kRowBlock;
}

// partials[b][c] = sum over the rows r of block b, in order, of x[r][c].
template <class S>
struct ColumnPartials {
  static constexpr unsigned kThreads = 64;
  using Shared = NoShared;
  struct Args {
    const S* x;       // [rows][width]
    float* partials;  // [row_blocks(rows)][width]
    std::size_t rows, width;
  };
  static Grid grid(std::size_t rows, std::size_t width) {
    return {static_cast<unsigned>(row_blocks(rows)), blocks_for(width, kThreads * kEach)};
  }
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t column = (std::size_t{block.y()} * kThreads + t.index) * kEach;
      if (column >= a.width) return;
      const std::size_t first = std::size_t{block.x()} * numerics::kRowBlock;
      const std::size_t past =
          first + numerics::kRowBlock < a.rows ? first + numerics::kRowBlock : a.rows;
      float sum[kEach] = {};
      for (std::size_t row = first; row < past; ++row) {
        float x[kEach];
        load_numbers(a.x + row * a.width, column, a.width, x);
        MUSTER_UNROLL
        for (unsigned i = 0; i < kEach; ++i)
          sum[i] = sum[i] + x[i];
      }
      store_numbers(sum, a.partials + std::size_t{block.x()} * a.width, column, a.width);
    });
  }
};

// sums[c] += partials[0][c], then partials[1][c] and so on.
struct AddPartials {
  static constexpr unsigned kThreads = 64;
  using Shared = NoShared;
  struct Args {
    const float* partials;  // [blocks][width]
    float* sums;            // [width]
    std::size_t blocks, width;
  };
  static Grid grid(std::size_t width) { return {blocks_for(width, kThreads), 1}; }
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t column = std::size_t{block.x()} * kThreads + t.index;
      if (column >= a.width) return;
      float sum = a.sums[column];
      for (std::size_t b = 0; b < a.blocks; ++b)
        sum = sum + a.partials[b * a.width + column];
      a.sums[column] = sum;
    });
  }
};

}  // namespace muster::runtime::cuda
