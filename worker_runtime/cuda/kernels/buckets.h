// SPDX-License-Identifier: Apache-2.0
//
// Gradients on their way to the other ranks and back: FP32 gradient -> bucket in the wire's type W
// (float, Bf16 or F16) -> sum over ranks -> FP32. The way back is Cast<W, float>, muster_widen_*;
// an FP32 wire needs none. Flat arrays; aligned ones (16 bytes; slices a multiple of 8 apart) move
// sixteen bytes an access. All of it has the bits of the CPU's all_reduce_sum (collectives/ops.h).
#pragma once

#include <cstdint>

#include "worker_runtime/cuda/kernels/lowest_index.h"

namespace muster::runtime::cuda {

// wire = gradient * factor, rounded. `bad`: a block, the lowest index whose product is not finite
// as FP32, before it is rounded: that a 16-bit format cannot hold a finite number is for the check
// of the reduced slice to find.
template <class W>
struct PackBucket {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = LowestOf<kThreads>;
  struct Args {
    const float* gradients;  // [count]
    W* wire;                 // [count]
    std::uint64_t* bad;      // [element_grid(count).x]: `first` + index, or kNoIndex
    std::size_t count;
    std::uint64_t first;  // flat index of gradients[0]
    float factor;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    Shared& shared = block.template shared<Shared>();
    block.each([&](Thread t) {
      const std::size_t at = element_offset(block.x(), t);
      std::uint64_t bad = kNoIndex;
      float x[kEach];
      load_numbers(a.gradients, at, a.count, x);
      MUSTER_UNROLL
      for (unsigned i = kEach; i-- > 0;) {
        x[i] = x[i] * a.factor;
        if (at + i < a.count && !is_finite(x[i])) bad = a.first + at + i;
      }
      store_numbers(x, a.wire, at, a.count);
      shared.index[t.index] = bad;
    });
    shared.reduce(block, [&](std::uint64_t lowest) { a.bad[block.x()] = lowest; });
  }
};

// out = slices[0] + slices[1] + …, added in FP32 from the first rank to the last, rounded once.
template <class W>
struct ReduceSlices {
  static constexpr unsigned kThreads = kElementThreads;
  using Shared = NoShared;
  struct Args {
    const W* slices;  // [ranks][stride]; own one included
    W* out;           // [count]; may be one of the slices
    std::size_t ranks, stride, count;
  };
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    block.each([&](Thread t) {
      const std::size_t at = element_offset(block.x(), t);
      float sum[kEach];
      load_numbers(a.slices, at, a.count, sum);
      for (std::size_t rank = 1; rank < a.ranks; ++rank) {
        float x[kEach];
        load_numbers(a.slices + rank * a.stride, at, a.count, x);
        MUSTER_UNROLL
        for (unsigned i = 0; i < kEach; ++i)
          sum[i] = sum[i] + x[i];
      }
      store_numbers(sum, a.out, at, a.count);
    });
  }
};

}  // namespace muster::runtime::cuda
