// SPDX-License-Identifier: Apache-2.0
//
// Token and position embeddings. S: how tables and activations are stored; gradients of the tables
// are FP32. Everything here has the CPU's bits: a table's gradient gets its addends one after the
// other in the order of (sequence, position), as the CPU walks through the batch, without atomics.
// Matrices are dense and row-major; aligned ones (16 bytes, width a multiple of 8) move sixteen
// bytes an access. Tokens of sequence b start at tokens + b * token_stride.
// REQUIRES: tokens lie in the table.
#pragma once

#include <cstdint>

#include "worker_runtime/cuda/kernels/elementwise.h"

namespace muster::runtime::cuda {

// x = wte[token] + wpe[position]. Launched over row_grid(batch * time, width).
template <class S>
struct Embed {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const std::int32_t* tokens;
    const S* wte;  // [vocabulary][width]
    const S* wpe;  // [at least time][width]
    S* x;          // [batch * time][width]
    std::size_t token_stride, batch, time, width;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const RowPlace at = row_place(block.x(), t, a.width);
      if (at.row >= a.batch * a.time) return;
      const std::size_t position = at.row % a.time;
      const auto token =
          static_cast<std::size_t>(a.tokens[at.row / a.time * a.token_stride + position]);
      float x[kEach];
      float add[kEach];
      load_numbers(a.wte + token * a.width, at.column, a.width, x);
      load_numbers(a.wpe + position * a.width, at.column, a.width, add);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        x[i] = x[i] + add[i];
      store_numbers(x, a.x + at.row * a.width, at.column, a.width);
    });
  }
};

// dwte[token] += dx of each place where the token stands. The host sorts the places (token_order.h)
// and a block takes those of one token, so a table row has one writer. Blocks beyond the last
// distinct token find no places: the launch does not depend on the data.
template <class S>
struct TokenGradient {
  static constexpr unsigned kThreads = 64;
  // Rows whose loads are under way together.
  static constexpr unsigned kAhead = 4;
  using Shared = NoShared;
  struct Args {
    const std::int32_t* distinct;  // [rows]
    const std::uint32_t* starts;   // [rows + 1]
    const std::uint32_t* places;   // [rows]
    const S* dx;                   // [rows][width]
    float* dwte;                   // [vocabulary][width]
    std::size_t width;
  };
  static Grid grid(std::size_t rows, std::size_t width) {
    return {static_cast<unsigned>(rows), blocks_for(width, std::size_t{kThreads} * kEach)};
  }
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t column = (std::size_t{block.y()} * kThreads + t.index) * kEach;
      const std::uint32_t first = a.starts[block.x()];
      const std::uint32_t past = a.starts[block.x() + 1];
      if (column >= a.width || first == past) return;
      float* row = a.dwte + static_cast<std::size_t>(a.distinct[block.x()]) * a.width;
      float sum[kEach];
      load_numbers(row, column, a.width, sum);
      for (std::uint32_t i = first; i < past; i += kAhead) {
        float dx[kAhead][kEach];
        MUSTER_UNROLL
        for (std::uint32_t j = 0; j < kAhead; ++j) {
          if (i + j < past) load_numbers(a.dx + a.places[i + j] * a.width, column, a.width, dx[j]);
        }
        MUSTER_UNROLL
        for (std::uint32_t j = 0; j < kAhead; ++j) {
          MUSTER_UNROLL
          for (unsigned c = 0; c < kEach; ++c)
            sum[c] = i + j < past ? sum[c] + dx[j][c] : sum[c];
        }
      }
      store_numbers(sum, row, column, a.width);
    });
  }
};

// dwpe[position] += dx of that position, from the first sequence to the last. Launched over
// row_grid(time, width).
template <class S>
struct PositionGradient {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const S* dx;  // [batch][time][width]
    float* dwpe;  // [at least time][width]
    std::size_t batch, time, width;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const RowPlace at = row_place(block.x(), t, a.width);
      if (at.row >= a.time) return;
      float sum[kEach];
      load_numbers(a.dwpe + at.row * a.width, at.column, a.width, sum);
      for (std::size_t b = 0; b < a.batch; ++b) {
        float dx[kEach];
        load_numbers(a.dx + (b * a.time + at.row) * a.width, at.column, a.width, dx);
        MUSTER_UNROLL
        for (unsigned i = 0; i < kEach; ++i)
          sum[i] = sum[i] + dx[i];
      }
      store_numbers(sum, a.dwpe + at.row * a.width, at.column, a.width);
    });
  }
};

}  // namespace muster::runtime::cuda
