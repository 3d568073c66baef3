// SPDX-License-Identifier: Apache-2.0
//
// What the attention kernels share: where a head lies in global memory, tiles of its rows in shared
// memory, and products of a warp with such tiles.
//
// A tile's rows are kHead numbers and eight more that nobody reads: 144 or 272 bytes, an odd
// multiple of sixteen. Eight consecutive rows therefore start in eight different groups of four
// banks, and the eight rows of sixteen bytes that a matrix load reads at a time meet no conflict;
// nor do the four-byte accesses of a fragment (row lane / 4, columns 2 * (lane % 4)).
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_runtime/cuda/kernels/mma.h"
#include "worker_runtime/cuda/kernels/pack.h"
#include "worker_runtime/numerics/math.h"

namespace muster::runtime::cuda {

inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kLn2 = 0.693147181F;

// 2^x within 2 units in the last place; below 2^-126: 0. One instruction on a device, so its bits
// are not the host's.
MUSTER_KERNEL_CODE float power_of_two(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return x < -126.0F ? 0.0F : numerics::exp(x * kLn2);
#endif
}

// 1 / sqrt(head_size).
MUSTER_HD float attention_scale(unsigned head_size) {
  return 1.0F / numerics::square_root(static_cast<float>(head_size));
}
template <unsigned kHead>
inline constexpr float kAttentionScale = kHead == 64 ? 0.125F : 0.0883883476F;

inline constexpr float kMinusInfinity = -__builtin_inff();

// Of a batch of sequences; grids have one y a head of a sequence.
struct AttentionSize {
  unsigned time, heads, head_size;
  MUSTER_HD std::size_t width() const { return std::size_t{heads} * head_size; }
};

// The place of head y % heads of sequence y / heads.
struct HeadPlace {
  std::size_t qkv;   // of its first query in [batch][time][3 * width]; keys + width, then values
  std::size_t out;   // in [batch][time][width]
  std::size_t rows;  // in [batch][heads][time]
};
MUSTER_HD HeadPlace head_place(const AttentionSize& size, unsigned y) {
  const std::size_t sequence = y / size.heads;
  const std::size_t head = y % size.heads;
  const std::size_t out = sequence * size.time * size.width() + head * size.head_size;
  const std::size_t before = sequence * size.time * size.width() * 3;
  return {before + head * size.head_size, out, std::size_t{y} * size.time};
}

template <class S, unsigned kRowCount, unsigned kHead>
struct Tile {
  static constexpr unsigned kRows = kRowCount;
  static constexpr unsigned kPacks = kHead / kPack<S>;  // in a row
  alignas(16) S at[kRows][kHead + kPack<S>];
};

// Starts copies of `tile`'s rows from rows [first, first + kRows) of a matrix of `time` rows,
// `stride` apart; rows beyond it become zeroes. In a phase of copies; by all kThreads threads.
template <unsigned kThreads, class Block, class T, class S>
MUSTER_KERNEL_CODE void copy_tile(Block& block, Thread t, T& tile, const S* from,
                                  std::size_t stride, unsigned first, unsigned time) {
  static_assert(T::kRows * T::kPacks % kThreads == 0);
  MUSTER_UNROLL
  for (unsigned i = 0; i < T::kRows * T::kPacks / kThreads; ++i) {
    const unsigned row = (i * kThreads + t.index) / T::kPacks;
    const unsigned column = (i * kThreads + t.index) % T::kPacks * kPack<S>;
    const bool exists = first + row < time;
    const std::size_t source = (exists ? first + row : 0) * stride + column;
    block.copy_pack(&tile.at[row][column], from + source, exists);
  }
}

// Writes a tile's rows that exist to rows [first, …) of such a matrix.
template <unsigned kThreads, class T, class S>
MUSTER_KERNEL_CODE void store_tile(Thread t, const T& tile, S* to, std::size_t stride,
                                   unsigned first, unsigned time) {
  MUSTER_UNROLL
  for (unsigned i = 0; i < T::kRows * T::kPacks / kThreads; ++i) {
    const unsigned row = (i * kThreads + t.index) / T::kPacks;
    const unsigned column = (i * kThreads + t.index) % T::kPacks * kPack<S>;
    if (first + row < time)
      store_pack_global(to + (first + row) * stride + column, load_pack(&tile.at[row][column]));
  }
}

// One lane's accumulators of `kTiles` products side by side, 16 x 8 each, to 16 rows of a tile.
template <unsigned kTiles, class T>
MUSTER_KERNEL_CODE void store_accumulators(Thread t, T& tile, unsigned first_row,
                                           const float (&c)[kTiles][4], float low_rows,
                                           float high_rows) {
  using S = std::remove_reference_t<decltype(tile.at[0][0])>;
  MUSTER_UNROLL
  for (unsigned n = 0; n < kTiles; ++n) {
    MUSTER_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const MmaPlace at = mma_c_place(t.lane(), 2 * half);
      const float factor = half == 0 ? low_rows : high_rows;
      store_pair(&tile.at[first_row + at.row][n * kMmaN + at.column],
                 rounded_pair<S>(c[n][2 * half] * factor, c[n][2 * half + 1] * factor));
    }
  }
}

// Accumulators as the left operand of a next product: A's columns [16 k, 16 k + 16) are the
// products 2 k and 2 k + 1, and their lanes are the same.
template <class S, unsigned kTiles>
MUSTER_KERNEL_CODE void pack_accumulators(const float (&c)[kTiles][4],
                                          std::uint32_t (&a)[kTiles / 2][4]) {
  MUSTER_UNROLL
  for (unsigned k = 0; k < kTiles / 2; ++k) {
    MUSTER_UNROLL
    for (unsigned i = 0; i < 4; ++i)
      a[k][i] = rounded_pair<S>(c[2 * k + i / 2][i % 2 * 2], c[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}

// A = tile[first_row …][16 k …], 16 x 16. out_of(t): the lane's four registers.
template <class Warp, class T, class F>
MUSTER_KERNEL_CODE void load_left(Warp& warp, const T& tile, unsigned first_row, unsigned k,
                                  F out_of) {
  warp.template load_matrices<false>([&](Thread t) {
    const unsigned m = t.lane() / 8;
    return MatrixRows{&tile.at[first_row + t.lane() % 8 + m % 2 * 8][k * kMmaK + m / 2 * 8],
                      out_of(t)};
  });
}

// Of one lane in a product's step over sixteen of the inner dimension.
struct StepOperands {
  const std::uint32_t* a;  // [4]
  std::uint32_t* b;        // [4], for two tiles of B
  float (*c)[4];           // [tiles]
};

// c[n] += A tile[8 n …][16 k …]^T, n < kTiles: against rows.
template <class S, unsigned kTiles, class Warp, class T, class F>
MUSTER_KERNEL_CODE void times_rows(Warp& warp, const T& tile, unsigned k, F operands_of) {
  MUSTER_UNROLL
  for (unsigned n = 0; n < kTiles; n += 2) {
    warp.template load_matrices<false>([&](Thread t) {
      const unsigned m = t.lane() / 8;
      return MatrixRows{&tile.at[n * kMmaN + t.lane() % 8 + m / 2 * 8][k * kMmaK + m % 2 * 8],
                        operands_of(t).b};
    });
    MUSTER_UNROLL
    for (unsigned i = 0; i < 4; i += 2) {
      warp.template mma<S>([&](Thread t) {
        const StepOperands o = operands_of(t);
        return MmaOperands{o.a, o.b + i, o.c[n + i / 2]};
      });
    }
  }
}

// c[n] += A tile[16 k …][8 n …], n < kTiles: a plain product.
template <class S, unsigned kTiles, class Warp, class T, class F>
MUSTER_KERNEL_CODE void times_columns(Warp& warp, const T& tile, unsigned k, F operands_of) {
  MUSTER_UNROLL
  for (unsigned n = 0; n < kTiles; n += 2) {
    warp.template load_matrices<true>([&](Thread t) {
      const unsigned m = t.lane() / 8;
      return MatrixRows{&tile.at[k * kMmaK + t.lane() % 8 + m % 2 * 8][n * kMmaN + m / 2 * 8],
                        operands_of(t).b};
    });
    MUSTER_UNROLL
    for (unsigned i = 0; i < 4; i += 2) {
      warp.template mma<S>([&](Thread t) {
        const StepOperands o = operands_of(t);
        return MmaOperands{o.a, o.b + i, o.c[n + i / 2]};
      });
    }
  }
}

}  // namespace muster::runtime::cuda
