// SPDX-License-Identifier: Apache-2.0
//
// What a row of attention's softmax needs of its gradient: the product of its output with the
// output's gradient, which is the sum over its keys of probability times its gradient. Runs before
// the kernels of the backward pass, for any head size and format; FP32 in a fixed order.
#pragma once

#include "worker_runtime/cuda/kernels/attention_tiles.h"

namespace muster::runtime::cuda {

template <class S>
struct AttentionDots {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kRowLanes = 8;  // that share a row
  static constexpr unsigned kRows = kThreads / kRowLanes;
  static constexpr unsigned kEachLane = 8;  // elements at a time
  using Shared = NoShared;
  struct Args {
    const S* out;    // [batch][time][heads * head_size]
    const S* d_out;  // likewise
    float* dots;     // [batch][heads][time]
    AttentionSize size;
    unsigned rows;  // batch * time * heads
  };
  static Grid grid(const AttentionSize& size, unsigned batch) {
    return {blocks_for(std::size_t{batch} * size.time * size.heads, kRows), 1};
  }

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    auto dots = block.template per_thread<float>();
    block.warps([&](auto& warp) {
      warp.each([&](Thread t) {
        const unsigned row = row_of(block.x(), t);
        if (row >= a.rows) return;
        const S* out = a.out + std::size_t{row} * a.size.head_size;
        const S* d_out = a.d_out + std::size_t{row} * a.size.head_size;
        float dot = 0.0F;
        for (unsigned at = t.lane() % kRowLanes * kEachLane; at < a.size.head_size;
             at += kRowLanes * kEachLane) {
          float x[kEachLane];
          float y[kEachLane];
          load_numbers(out, at, a.size.head_size, x);
          load_numbers(d_out, at, a.size.head_size, y);
          MUSTER_UNROLL
          for (unsigned i = 0; i < kEachLane; ++i)
            dot = numerics::multiply_add(x[i], y[i], dot);
        }
        dots[t] = dot;
      });
      warp.template sum<kRowLanes>([&](Thread t) -> float& { return dots[t]; });
      warp.each([&](Thread t) {
        const unsigned row = row_of(block.x(), t);
        if (row >= a.rows || t.lane() % kRowLanes != 0) return;
        const unsigned head = row % a.size.heads;
        const unsigned token = row / a.size.heads;
        const unsigned sequence = token / a.size.time;
        a.dots[(sequence * a.size.heads + head) * a.size.time + token % a.size.time] = dots[t];
      });
    });
  }

 private:
  MUSTER_KERNEL_CODE static unsigned row_of(unsigned block, Thread t) {
    return block * kRows + t.index / kRowLanes;
  }
};

}  // namespace muster::runtime::cuda
