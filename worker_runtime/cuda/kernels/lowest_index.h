// SPDX-License-Identifier: Apache-2.0
//
// Where the first non-finite number stands: the lowest index a block, then the lowest of all. A
// minimum of integers does not depend on any order.
#pragma once

#include <cstdint>

#include "worker_runtime/cuda/kernels/elementwise.h"

namespace muster::runtime::cuda {

// No such element.
inline constexpr std::uint64_t kNoIndex = ~std::uint64_t{0};

MUSTER_HD bool is_finite(float x) {
  return (numerics::bits_of(x) & 0x7f800000U) != 0x7f800000U;
}

// The lowest of what a block's threads hold; `index` is of the block's shared memory.
template <unsigned kThreads>
struct LowestOf {
  static constexpr unsigned kGroups = 16;
  std::uint64_t index[kThreads];

  // Each thread has written its own index in an earlier phase. Gives the lowest to `write`, once.
  template <class Block, class Write>
  MUSTER_KERNEL_CODE void reduce(Block& block, Write write) {
    block.each([&](Thread t) {
      if (t.index >= kGroups) return;
      std::uint64_t lowest = index[t.index];
      for (unsigned i = t.index + kGroups; i < kThreads; i += kGroups)
        lowest = index[i] < lowest ? index[i] : lowest;
      index[t.index] = lowest;
    });
    block.each([&](Thread t) {
      if (t.index != 0) return;
      std::uint64_t lowest = index[0];
      for (unsigned i = 1; i < kGroups; ++i)
        lowest = index[i] < lowest ? index[i] : lowest;
      write(lowest);
    });
  }
};

// *lowest = the lowest of `count` indices, or of *lowest and them where `keep`. One block.
struct LowestIndex {
  static constexpr unsigned kThreads = 256;
  using Shared = LowestOf<kThreads>;
  struct Args {
    const std::uint64_t* indices;
    std::uint64_t* lowest;
    std::size_t count;
    unsigned keep;
  };
  static Grid grid() { return {1, 1}; }
  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    Shared& shared = block.template shared<Shared>();
    block.each([&](Thread t) {
      std::uint64_t lowest = a.keep != 0 ? *a.lowest : kNoIndex;
      for (std::size_t i = t.index; i < a.count; i += kThreads)
        lowest = a.indices[i] < lowest ? a.indices[i] : lowest;
      shared.index[t.index] = lowest;
    });
    shared.reduce(block, [&](std::uint64_t lowest) { *a.lowest = lowest; });
  }
};

}  // namespace muster::runtime::cuda
