// SPDX-License-Identifier: Apache-2.0
//
// Our own matrix product on panels that fit in a cache; see kernels.h. Each element of the result
// is one chain of fused multiply-adds over k in ascending order, whatever the blocking.
#pragma once

#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cpu/kernels/memory.h"

namespace muster::runtime {
namespace {

constexpr std::size_t round_up_lanes(std::size_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// A strided view of the left factor: element (row, k) at p[row * row_stride + k * k_stride].
template <class A>
struct Left {
  const A* p;
  std::size_t row_stride;
  std::size_t k_stride;
};

#if defined(__AVX512F__)
inline constexpr std::size_t kTileVectors = 2;
#else
inline constexpr std::size_t kTileVectors = 1;
#endif

template <std::size_t kRows, std::size_t kVectors, class A>
MUSTER_LANES void tile(const Left<A>& a, const A* b, std::size_t b_stride, A* c,
                       std::size_t c_stride, std::size_t k_begin, std::size_t k_end, bool add) {
  using V = Lanes<A>;
  V sum[kRows][kVectors];
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v)
      sum[r][v] = add ? load(c + r * c_stride + v * kLanes) : V(A{0});
  }
  for (std::size_t k = k_begin; k < k_end; ++k) {
    V right[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v)
      right[v] = load(b + k * b_stride + v * kLanes);
    for (std::size_t r = 0; r < kRows; ++r) {
      const V left(a.p[r * a.row_stride + k * a.k_stride]);
      for (std::size_t v = 0; v < kVectors; ++v)
        sum[r][v] = multiply_add(left, right[v], sum[r][v]);
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t v = 0; v < kVectors; ++v)
      store(c + r * c_stride + v * kLanes, sum[r][v]);
  }
}

template <std::size_t kRows, class A>
MUSTER_LANES void tile_rows(const Left<A>& a, const A* b, std::size_t b_stride, A* c,
                            std::size_t c_stride, std::size_t columns, std::size_t k_begin,
                            std::size_t k_end, bool add) {
  constexpr std::size_t kStep = kTileVectors * kLanes;
  std::size_t j = 0;
  for (; j + kStep <= columns; j += kStep)
    tile<kRows, kTileVectors>(a, b + j, b_stride, c + j, c_stride, k_begin, k_end, add);
  for (; j < columns; j += kLanes)
    tile<kRows, 1>(a, b + j, b_stride, c + j, c_stride, k_begin, k_end, add);
}

// c [rows][columns] (+)= a b over k in [k_begin, k_end). REQUIRES: columns % 16 == 0.
template <class A>
void panel(Left<A> a, const A* b, std::size_t b_stride, A* c, std::size_t c_stride,
           std::size_t rows, std::size_t columns, std::size_t k_begin, std::size_t k_end,
           bool add) {
  std::size_t r = 0;
  for (; r + 4 <= rows; r += 4, a.p += 4 * a.row_stride, c += 4 * c_stride)
    tile_rows<4>(a, b, b_stride, c, c_stride, columns, k_begin, k_end, add);
  for (; r < rows; ++r, a.p += a.row_stride, c += c_stride)
    tile_rows<1>(a, b, b_stride, c, c_stride, columns, k_begin, k_end, add);
}

template <class A>
void product(bool transpose_a, bool transpose_b, bool add, std::size_t m, std::size_t n,
             std::size_t k, const A* a, std::size_t lda, const A* b, std::size_t ldb, A* c,
             A* scratch) {
  const std::size_t columns = round_up_lanes(n);
  A* packed = scratch;
  A* rows = scratch + k * columns;
  for (std::size_t l = 0; l < k; ++l) {
    for (std::size_t j = 0; j < columns; ++j)
      packed[l * columns + j] = j >= n ? A{0} : (transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
  }
  for (std::size_t r = 0; r < m; r += 4) {
    const std::size_t count = smaller(4, m - r);
    const Left<A> left{a + (transpose_a ? r : r * lda), transpose_a ? 1 : lda,
                       transpose_a ? lda : 1};
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < columns; ++j)
        rows[i * columns + j] = add && j < n ? c[(r + i) * n + j] : A{0};
    }
    panel(left, packed, columns, rows, columns, count, columns, 0, k, add);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < n; ++j)
        c[(r + i) * n + j] = rows[i * columns + j];
    }
  }
}

}  // namespace
}  // namespace muster::runtime
