// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm, forward and backward. S: how activations, weights and biases are stored; P: how the
// product before it left the gradient, S or float (it is rounded to S when it is read, as on the
// CPU). Matrices are dense [rows][width], row-major; statistics are FP32 [rows]. Aligned arrays
// (16 bytes, width a multiple of 8) move sixteen bytes an access; others work, slower.
//
// Forward and dx: one warp a row. A lane adds its own columns from left to right, the lanes are
// added by the warp's tree, so mean, rstd and the two sums behind dx are FP32 sums in another
// order than the CPU's: with u = 2^-24 the mean is within (width / 32 + 6) u of the mean of |x|,
// and what follows from it agrees with FP64 within a few of those, then is rounded to S once.
// Given the same statistics y, dweight and dbias have the CPU's bits.
#pragma once

#include "worker_runtime/cuda/kernels/column_sums.h"
#include "worker_runtime/cuda/kernels/elementwise.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime::cuda {

inline constexpr float kLayerNormEpsilon = 1e-5F;
inline constexpr unsigned kNormThreads = 256;

// Of kernels that give each row a warp.
inline Grid warp_row_grid(std::size_t rows) {
  return {blocks_for(rows, kNormThreads / kWarp), 1};
}
template <class Warp>
MUSTER_KERNEL_CODE std::size_t warp_row(unsigned block, const Warp& warp) {
  return std::size_t{block} * (kNormThreads / kWarp) + warp.index();
}
// Columns that a warp takes at once.
inline constexpr std::size_t kWarpColumns = std::size_t{kWarp} * kEach;

// y = (x - mean) * rstd * weight + bias.
template <class S>
struct NormForward {
  static constexpr unsigned kThreads = kNormThreads;
  using Shared = NoShared;
  struct Args {
    const S* x;          // [rows][width]
    const S* weight;     // [width]
    const S* bias;       // [width]
    S* y;                // [rows][width]; may be `x`
    float *mean, *rstd;  // [rows], kept for the backward pass
    std::size_t rows, width;
  };

  struct Sums {
    float total = 0;
    float squares = 0;
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    auto sums = block.template per_thread<Sums>();
    block.warps([&](auto& warp) {
      const std::size_t row = warp_row(block.x(), warp);
      if (row >= a.rows) return;
      const S* x = a.x + row * a.width;
      const float size = static_cast<float>(a.width);
      warp.each([&](Thread t) { sums[t].total = lane_total(x, a.width, t); });
      warp.sum([&](Thread t) -> float& { return sums[t].total; });
      warp.each(
          [&](Thread t) { sums[t].squares = lane_squares(x, a.width, t, sums[t].total / size); });
      warp.sum([&](Thread t) -> float& { return sums[t].squares; });
      warp.each([&](Thread t) {
        const float mean = sums[t].total / size;
        const float variance = sums[t].squares / size;
        const float rstd = 1.0F / numerics::square_root(variance + kLayerNormEpsilon);
        if (t.lane() == 0) {
          a.mean[row] = mean;
          a.rstd[row] = rstd;
        }
        write_row(a, x, a.y + row * a.width, t, mean, rstd);
      });
    });
  }

 private:
  MUSTER_KERNEL_CODE static float lane_total(const S* row, std::size_t width, Thread t) {
    float sum = 0;
    for (std::size_t at = std::size_t{t.lane()} * kEach; at < width; at += kWarpColumns) {
      float x[kEach];
      load_numbers(row, at, width, x);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        sum = sum + x[i];
    }
    return sum;
  }
  MUSTER_KERNEL_CODE static float lane_squares(const S* row, std::size_t width, Thread t,
                                               float mean) {
    float sum = 0;
    for (std::size_t at = std::size_t{t.lane()} * kEach; at < width; at += kWarpColumns) {
      float x[kEach];
      load_numbers(row, at, width, x);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        const float d = at + i < width ? x[i] - mean : 0.0F;
        sum = numerics::multiply_add(d, d, sum);
      }
    }
    return sum;
  }
  MUSTER_KERNEL_CODE static void write_row(const Args& a, const S* row, S* out, Thread t,
                                           float mean, float rstd) {
    for (std::size_t at = std::size_t{t.lane()} * kEach; at < a.width; at += kWarpColumns) {
      float x[kEach];
      float weight[kEach];
      float bias[kEach];
      load_numbers(row, at, a.width, x);
      load_numbers(a.weight, at, a.width, weight);
      load_numbers(a.bias, at, a.width, bias);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i)
        x[i] = numerics::multiply_add((x[i] - mean) * rstd, weight[i], bias[i]);
      store_numbers(x, out, at, a.width);
    }
  }
};

// dx (=, or += where `replace` is 0) the gradient with respect to x.
template <class S, class P>
struct NormBackward {
  static constexpr unsigned kThreads = kNormThreads;
  using Shared = NoShared;
  struct Args {
    const S* x;                // [rows][width]
    const S* weight;           // [width]
    const float *mean, *rstd;  // [rows]
    const P* dy;               // [rows][width]
    S* dx;                     // [rows][width]; no other array
    std::size_t rows, width;
    unsigned replace;
  };

  struct Sums {
    float direct = 0;  // of dy * weight
    float along = 0;   // of dy * weight * normal
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    auto sums = block.template per_thread<Sums>();
    block.warps([&](auto& warp) {
      const std::size_t row = warp_row(block.x(), warp);
      if (row >= a.rows) return;
      warp.each([&](Thread t) { sums[t] = lane_sums(row_of(a, row), t); });
      warp.sum([&](Thread t) -> float& { return sums[t].direct; });
      warp.sum([&](Thread t) -> float& { return sums[t].along; });
      warp.each([&](Thread t) {
        write_row(row_of(a, row), t, sums[t], a.replace != 0, a.dx + row * a.width);
      });
    });
  }

 private:
  // What one row's lanes read.
  struct Row {
    const S* x;
    const P* dy;
    const S* weight;
    std::size_t width;
    float mean, rstd;
  };
  // Of kEach columns: the normalised x and dy * weight; 0 beyond the row.
  struct Piece {
    float normal[kEach];
    float scaled[kEach];
  };
  MUSTER_KERNEL_CODE static Row row_of(const Args& a, std::size_t row) {
    return {a.x + row * a.width, a.dy + row * a.width, a.weight, a.width, a.mean[row], a.rstd[row]};
  }
  MUSTER_KERNEL_CODE static Piece load_piece(const Row& row, std::size_t at) {
    Piece piece;
    float weight[kEach];
    load_numbers(row.x, at, row.width, piece.normal);
    load_numbers(row.dy, at, row.width, piece.scaled);
    load_numbers(row.weight, at, row.width, weight);
    MUSTER_UNROLL
    for (unsigned i = 0; i < kEach; ++i) {
      piece.normal[i] = at + i < row.width ? (piece.normal[i] - row.mean) * row.rstd : 0.0F;
      piece.scaled[i] = rounded<S>(piece.scaled[i]) * weight[i];
    }
    return piece;
  }
  MUSTER_KERNEL_CODE static Sums lane_sums(const Row& row, Thread t) {
    Sums sums;
    for (std::size_t at = std::size_t{t.lane()} * kEach; at < row.width; at += kWarpColumns) {
      const Piece piece = load_piece(row, at);
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        sums.direct = sums.direct + piece.scaled[i];
        sums.along = numerics::multiply_add(piece.scaled[i], piece.normal[i], sums.along);
      }
    }
    return sums;
  }
  MUSTER_KERNEL_CODE static void write_row(const Row& row, Thread t, const Sums& sums, bool replace,
                                           S* out) {
    const float size = static_cast<float>(row.width);
    const float direct = sums.direct / size;
    const float along = sums.along / size;
    for (std::size_t at = std::size_t{t.lane()} * kEach; at < row.width; at += kWarpColumns) {
      const Piece piece = load_piece(row, at);
      float before[kEach] = {};
      if (!replace) load_numbers(out, at, row.width, before);
      float dx[kEach];
      MUSTER_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        const float gradient = (piece.scaled[i] - direct - piece.normal[i] * along) * row.rstd;
        dx[i] = replace ? gradient : before[i] + gradient;
      }
      store_numbers(dx, out, at, row.width);
    }
  }
};

// Partials of dweight and dbias over blocks of rows, in row order; AddPartials adds each to its
// gradient. They do not need dx, so either kernel may run first.
template <class S, class P>
struct NormPartials {
  static constexpr unsigned kThreads = 64;
  using Shared = NoShared;
  struct Args {
    const S* x;                // [rows][width]
    const float *mean, *rstd;  // [rows]
    const P* dy;               // [rows][width]
    float* weight_partials;    // [row_blocks(rows)][width]
    float* bias_partials;      // [row_blocks(rows)][width]
    std::size_t rows, width;
  };
  static Grid grid(std::size_t rows, std::size_t width) {
    return {static_cast<unsigned>(row_blocks(rows)),
            blocks_for(width, std::size_t{kThreads} * kEach)};
  }
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t column = (std::size_t{block.y()} * kThreads + t.index) * kEach;
      if (column >= a.width) return;
      const std::size_t first = std::size_t{block.x()} * numerics::kRowBlock;
      const std::size_t past =
          first + numerics::kRowBlock < a.rows ? first + numerics::kRowBlock : a.rows;
      float weight_sum[kEach] = {};
      float bias_sum[kEach] = {};
      for (std::size_t row = first; row < past; ++row) {
        float x[kEach];
        float dy[kEach];
        load_numbers(a.x + row * a.width, column, a.width, x);
        load_numbers(a.dy + row * a.width, column, a.width, dy);
        const float mean = a.mean[row];
        const float rstd = a.rstd[row];
        MUSTER_UNROLL
        for (unsigned i = 0; i < kEach; ++i) {
          const float gradient = rounded<S>(dy[i]);
          weight_sum[i] = numerics::multiply_add(gradient, (x[i] - mean) * rstd, weight_sum[i]);
          bias_sum[i] = bias_sum[i] + gradient;
        }
      }
      const std::size_t at = std::size_t{block.x()} * a.width;
      store_numbers(weight_sum, a.weight_partials + at, column, a.width);
      store_numbers(bias_sum, a.bias_partials + at, column, a.width);
    });
  }
};

}  // namespace muster::runtime::cuda
