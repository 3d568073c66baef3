// SPDX-License-Identifier: Apache-2.0
//
// One matrix product of a warp on tensor cores: D (16 x 8, FP32) = A (16 x 16) B (16 x 8) + D, with
// A and B of Bf16 or F16: mma.sync m16n8k16, row-major A, column-major B. Each lane holds a part of
// every operand; which one is the map below (PTX ISA, "Matrix Fragments for mma.m16n8k16").
// With g = lane / 4 and q = lane % 4:
//
//   a[0] = A[g    ][2q, 2q + 1]      b[0] = B[2q,     2q + 1][g]     c[0], c[1] = D[g    ][2q, 2q +
//   1] a[1] = A[g + 8][2q, 2q + 1]      b[1] = B[2q + 8, 2q + 9][g]     c[2], c[3] = D[g + 8][2q,
//   2q + 1] a[2] = A[g    ][2q + 8, 2q + 9] a[3] = A[g + 8][2q + 8, 2q + 9]
//
// Two 16-bit numbers stand in one register, the one of the lower index in the low half.
//
// The host form gathers the operands by this map and adds each D element's sixteen products, which
// are exact, to it one after the other in FP32; a device's tensor core adds in an order and with
// internal widths of its own, so results agree within the tolerance of a 16-term FP32 sum.
#pragma once

#include <cstdint>
#include <cstring>

#include "worker_runtime/cuda/kernels/exec.h"
#include "worker_runtime/cuda/kernels/pack.h"

namespace muster::runtime::cuda {

inline constexpr unsigned kMmaM = 16;
inline constexpr unsigned kMmaN = 8;
inline constexpr unsigned kMmaK = 16;

// Of one lane; arrays of 4, 2 and 4.
struct MmaOperands {
  const std::uint32_t* a;
  const std::uint32_t* b;
  float* c;
};

// Where element `i` of a lane's fragment lies in its matrix.
struct MmaPlace {
  unsigned row;
  unsigned column;
};
// A: i in 0..7, register i / 2, half i % 2.
MUSTER_HD MmaPlace mma_a_place(unsigned lane, unsigned i) {
  return {lane / 4 + (i / 2 % 2) * 8, lane % 4 * 2 + i % 2 + i / 4 * 8};
}
// B: i in 0..3.
MUSTER_HD MmaPlace mma_b_place(unsigned lane, unsigned i) {
  return {lane % 4 * 2 + i % 2 + i / 2 * 8, lane / 4};
}
// D: i in 0..3.
MUSTER_HD MmaPlace mma_c_place(unsigned lane, unsigned i) {
  return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}

template <class S>
MUSTER_HD std::uint32_t two_in_one(S low, S high) {
  return std::uint32_t{low.bits} | (std::uint32_t{high.bits} << 16);
}
template <class S>
MUSTER_HD S one_of_two(std::uint32_t both, unsigned which) {
  return S{static_cast<std::uint16_t>(both >> (16 * which))};
}

// How operands come from shared memory (ldmatrix.x4): four matrices of 8 x 8 16-bit numbers. Lane
// 8m + r gives the address of row r of matrix m, sixteen bytes at a multiple of sixteen, and gets
// into out[m] the two numbers M[g][2q, 2q + 1]; when transposed M[2q, 2q + 1][g].
struct MatrixRows {
  const void* row;
  std::uint32_t* out;  // [4]
};

// Two numbers rounded to S, the first in the low half.
template <class S>
MUSTER_KERNEL_CODE std::uint32_t rounded_pair(float low, float high) {
#if defined(__CUDACC__)
  std::uint32_t both;
  if constexpr (std::is_same_v<S, Bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
#else
  return two_in_one(stored<S>(low), stored<S>(high));
#endif
}

// Both at once; `to` is a multiple of four bytes.
template <class S>
MUSTER_KERNEL_CODE void store_pair(S* to, std::uint32_t both) {
#if defined(__CUDACC__)
  *reinterpret_cast<std::uint32_t*>(to) = both;
#else
  MUSTER_CHECK(reinterpret_cast<std::uintptr_t>(to) % sizeof(both) == 0);
  to[0] = one_of_two<S>(both, 0);
  to[1] = one_of_two<S>(both, 1);
#endif
}

#if defined(__CUDACC__)

__device__ __forceinline__ std::uint32_t shared_address(const void* in_shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(in_shared));
}

template <bool kTransposed>
__device__ __forceinline__ void load_matrices_device(MatrixRows m) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m.out[0]), "=r"(m.out[1]), "=r"(m.out[2]), "=r"(m.out[3])
                 : "r"(shared_address(m.row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m.out[0]), "=r"(m.out[1]), "=r"(m.out[2]), "=r"(m.out[3])
                 : "r"(shared_address(m.row))
                 : "memory");
  }
}

template <class S>
__device__ __forceinline__ void mma_device(MmaOperands o) {
  if constexpr (std::is_same_v<S, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(o.c[0]), "+f"(o.c[1]), "+f"(o.c[2]), "+f"(o.c[3])
        : "r"(o.a[0]), "r"(o.a[1]), "r"(o.a[2]), "r"(o.a[3]), "r"(o.b[0]), "r"(o.b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(o.c[0]), "+f"(o.c[1]), "+f"(o.c[2]), "+f"(o.c[3])
        : "r"(o.a[0]), "r"(o.a[1]), "r"(o.a[2]), "r"(o.a[3]), "r"(o.b[0]), "r"(o.b[1]));
  }
}

#else

template <bool kTransposed>
void load_matrices_host(const MatrixRows (&lanes)[kWarp]) {
  constexpr unsigned kSide = 8;
  for (unsigned m = 0; m < 4; ++m) {
    std::uint16_t matrix[kSide][kSide];
    for (unsigned r = 0; r < kSide; ++r) {
      const void* row = lanes[kSide * m + r].row;
      MUSTER_CHECK(reinterpret_cast<std::uintptr_t>(row) % sizeof(matrix[r]) == 0);
      std::memcpy(matrix[r], row, sizeof(matrix[r]));
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      std::uint32_t both = 0;
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned fast = lane % 4 * 2 + i;
        const unsigned slow = lane / 4;
        const std::uint16_t x = kTransposed ? matrix[fast][slow] : matrix[slow][fast];
        both |= std::uint32_t{x} << (16 * i);
      }
      lanes[lane].out[m] = both;
    }
  }
}

template <class S>
void mma_host(const MmaOperands (&lanes)[kWarp]) {
  float a[kMmaM][kMmaK];
  float b[kMmaK][kMmaN];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < 8; ++i) {
      const MmaPlace at = mma_a_place(lane, i);
      a[at.row][at.column] = to_number(one_of_two<S>(lanes[lane].a[i / 2], i % 2));
    }
    for (unsigned i = 0; i < 4; ++i) {
      const MmaPlace at = mma_b_place(lane, i);
      b[at.row][at.column] = to_number(one_of_two<S>(lanes[lane].b[i / 2], i % 2));
    }
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const MmaPlace at = mma_c_place(lane, i);
      float sum = lanes[lane].c[i];
      for (unsigned k = 0; k < kMmaK; ++k)
        sum = sum + a[at.row][k] * b[k][at.column];
      lanes[lane].c[i] = sum;
    }
  }
}

#endif

}  // namespace muster::runtime::cuda
