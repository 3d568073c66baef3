// SPDX-License-Identifier: Apache-2.0
//
// Causal self-attention on tensor cores, forward: out = softmax(q k^T / sqrt(head size)) v for the
// keys up to the query's own place, by online softmax: a block walks the tiles of keys from the
// first to the one on the diagonal (those above are never touched), and what it has summed is
// rescaled whenever a row's maximum grows. The backward pass: attention_backward.h. Other head
// sizes and FP32: attention_plain.h, with the same arguments.
//
// Numbers: logits, their exponentials and all sums are FP32. An exponential, at most 1, is rounded
// to S where it enters the product with v; the row's sum is of the unrounded ones and divides at
// the end. (The CPU divides before it rounds: the same within a unit of S.)
//
// Unlike the CPU's maximum and reciprocal sum, one number a row is kept for the backward pass: the
// natural logarithm of its sum of exponentials, [batch][heads][time] FP32. A probability is then
// exp(logit - lse), for tensor-core and plain kernels alike.
//
// Arrays start at multiples of sixteen bytes.
//
// A block is four warps and 64 queries. By nvcc 13.0, with nothing spilled:
//
//   head size   registers a thread, sm_80, sm_90   shared bytes a block   blocks a multiprocessor
//   64                              128     142                  36,864                   4, 3
//   128                             168     174                  69,632                      2
#pragma once

#include "worker_runtime/cuda/kernels/attention_tiles.h"

namespace muster::runtime::cuda {

inline constexpr unsigned kAttentionRows = 64;      // queries (keys) of a block, 16 a warp
inline constexpr unsigned kAttentionThreads = 128;  // four warps

// Whether there are tensor-core kernels; else the plain ones run.
template <class S>
constexpr bool has_tensor_attention(unsigned head_size) {
  return !std::is_same_v<S, float> && (head_size == 64 || head_size == 128);
}

template <class S>
struct AttentionArgs {
  const S* qkv;  // [batch][time][3 * heads * head_size], queries, keys, values
  S* out;        // [batch][time][heads * head_size]
  float* lse;    // [batch][heads][time]
  AttentionSize size;
};

// Of the tensor-core kernels. batch * heads is at most 65535.
inline Grid attention_grid(const AttentionSize& size, unsigned batch) {
  return {blocks_for(size.time, kAttentionRows), batch * size.heads};
}

template <class S, unsigned kHead>
struct Attention {
  static constexpr unsigned kThreads = kAttentionThreads;
  static constexpr unsigned kKeys = kAttentionRows;  // of a tile
  using Args = AttentionArgs<S>;
  struct Shared {  // two of each: one arrives while the other is used
    Tile<S, kKeys, kHead> k[2], v[2];
  };
  // Of one lane: its fragments of its warp's sixteen rows. It works on rows lane / 4 ([0]) and
  // lane / 4 + 8 ([1]) of them.
  struct State {
    std::uint32_t q[kHead / kMmaK][4];
    float out[kHead / kMmaN][4];
    float logits[kKeys / kMmaN][4];
    std::uint32_t p[kKeys / kMmaK][4];
    std::uint32_t b[4];
    float max[2];  // of the row's logits so far, before scaling
    float tile_max[2];
    float sum[2];  // of this lane's exponentials so far
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    const unsigned time = a.size.time;
    const std::size_t width = a.size.width();
    const HeadPlace place = head_place(a.size, block.y());
    const S* q = a.qkv + place.qkv;
    // The rows with most keys start first.
    const unsigned query_block = blocks_for(time, kAttentionRows) - 1 - block.x();
    const unsigned first = query_block * kAttentionRows;
    Shared& shared = block.template shared<Shared>();
    auto states = block.template per_thread<State>();

    const auto copy_keys = [&](Thread t, unsigned tile) {
      copy_tile<kThreads>(block, t, shared.k[tile % 2], q + width, 3 * width, tile * kKeys, time);
      copy_tile<kThreads>(block, t, shared.v[tile % 2], q + 2 * width, 3 * width, tile * kKeys,
                          time);
    };
    block.template copies<0>([&](Thread t) {
      copy_tile<kThreads>(block, t, shared.k[1], q, 3 * width, first, time);
      copy_keys(t, 0);
    });
    block.warps([&](auto& warp) {
      MUSTER_UNROLL
      for (unsigned k = 0; k < kHead / kMmaK; ++k)
        load_left(warp, shared.k[1], warp.index() * kMmaM, k,
                  [&](Thread t) { return states[t].q[k]; });
      warp.each([&](Thread t) { states[t].max[0] = states[t].max[1] = kMinusInfinity; });
    });
    for (unsigned tile = 0; tile <= query_block; ++tile) {
      block.template copies<1>([&](Thread t) {
        if (tile < query_block) copy_keys(t, tile + 1);
      });
      block.warps([&](auto& warp) {
        make_logits(warp, states, shared.k[tile % 2], tile == query_block);
        take_exponentials(warp, states);
        MUSTER_UNROLL
        for (unsigned k = 0; k < kKeys / kMmaK; ++k)
          times_columns<S, kHead / kMmaN>(warp, shared.v[tile % 2], k, [&](Thread t) {
            State& s = states[t];
            return StepOperands{s.p[k], s.b, s.out};
          });
      });
    }
    store(block, states, shared, a, place, first);
  }

 private:
  template <class Warp, class States, class T>
  MUSTER_KERNEL_CODE static void make_logits(Warp& warp, States& states, const T& keys,
                                             bool diagonal) {
    warp.each([&](Thread t) {
      MUSTER_UNROLL
      for (unsigned n = 0; n < kKeys / kMmaN; ++n) {
        MUSTER_UNROLL
        for (unsigned i = 0; i < 4; ++i)
          states[t].logits[n][i] = 0.0F;
      }
    });
    MUSTER_UNROLL
    for (unsigned k = 0; k < kHead / kMmaK; ++k)
      times_rows<S, kKeys / kMmaN>(warp, keys, k, [&](Thread t) {
        State& s = states[t];
        return StepOperands{s.q[k], s.b, s.logits};
      });
    // On the diagonal queries and keys have the same numbers in their tiles.
    if (!diagonal) return;
    warp.each([&](Thread t) {
      MUSTER_UNROLL
      for (unsigned n = 0; n < kKeys / kMmaN; ++n) {
        MUSTER_UNROLL
        for (unsigned i = 0; i < 4; ++i) {
          const MmaPlace at = mma_c_place(t.lane(), i);
          if (n * kMmaN + at.column > warp.index() * kMmaM + at.row)
            states[t].logits[n][i] = kMinusInfinity;
        }
      }
    });
  }

  // Logits to exponentials below the rows' maxima, which may grow. Key 0 is in the first tile and
  // every row sees it, so a maximum is finite where the inputs are.
  template <class Warp, class States>
  MUSTER_KERNEL_CODE static void take_exponentials(Warp& warp, States& states) {
    constexpr float kScale = kAttentionScale<kHead> * kLog2E;
    warp.each([&](Thread t) {
      State& s = states[t];
      MUSTER_UNROLL
      for (unsigned r = 0; r < 2; ++r) {
        s.tile_max[r] = s.max[r];
        MUSTER_UNROLL
        for (unsigned n = 0; n < kKeys / kMmaN; ++n) {
          MUSTER_UNROLL
          for (unsigned i = 2 * r; i < 2 * r + 2; ++i)
            s.tile_max[r] = s.logits[n][i] > s.tile_max[r] ? s.logits[n][i] : s.tile_max[r];
        }
      }
    });
    warp.template max<4>([&](Thread t) -> float& { return states[t].tile_max[0]; });
    warp.template max<4>([&](Thread t) -> float& { return states[t].tile_max[1]; });
    warp.each([&](Thread t) {
      State& s = states[t];
      MUSTER_UNROLL
      for (unsigned r = 0; r < 2; ++r) {
        const float rescale = power_of_two((s.max[r] - s.tile_max[r]) * kScale);
        const float shift = s.tile_max[r] * kScale;
        s.max[r] = s.tile_max[r];
        s.sum[r] = s.sum[r] * rescale;
        MUSTER_UNROLL
        for (unsigned n = 0; n < kHead / kMmaN; ++n) {
          s.out[n][2 * r] = s.out[n][2 * r] * rescale;
          s.out[n][2 * r + 1] = s.out[n][2 * r + 1] * rescale;
        }
        MUSTER_UNROLL
        for (unsigned n = 0; n < kKeys / kMmaN; ++n) {
          MUSTER_UNROLL
          for (unsigned i = 2 * r; i < 2 * r + 2; ++i) {
            s.logits[n][i] = power_of_two(numerics::multiply_add(s.logits[n][i], kScale, -shift));
            s.sum[r] = s.sum[r] + s.logits[n][i];
          }
        }
      }
      pack_accumulators<S>(s.logits, s.p);
    });
  }

  template <class Block, class States>
  MUSTER_KERNEL_CODE static void store(Block& block, States& states, Shared& shared, const Args& a,
                                       const HeadPlace& place, unsigned first) {
    block.warps([&](auto& warp) {
      warp.template sum<4>([&](Thread t) -> float& { return states[t].sum[0]; });
      warp.template sum<4>([&](Thread t) -> float& { return states[t].sum[1]; });
      warp.each([&](Thread t) {
        const State& s = states[t];
        store_accumulators(t, shared.k[0], warp.index() * kMmaM, s.out, 1.0F / s.sum[0],
                           1.0F / s.sum[1]);
        if (t.lane() % 4 != 0) return;
        MUSTER_UNROLL
        for (unsigned r = 0; r < 2; ++r) {
          const unsigned row = first + warp.index() * kMmaM + t.lane() / 4 + r * 8;
          if (row < a.size.time) {
            a.lse[place.rows + row] =
                numerics::multiply_add(s.max[r], kAttentionScale<kHead>, numerics::log(s.sum[r]));
          }
        }
      });
    });
    block.each([&](Thread t) {
      store_tile<kThreads>(t, shared.k[0], a.out + place.out, a.size.width(), first, a.size.time);
    });
  }
};

}  // namespace muster::runtime::cuda
