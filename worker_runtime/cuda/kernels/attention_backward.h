// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of attention.h on tensor cores. With P the probabilities, recomputed from
// logits and their row's lse, G = d_out v^T and D a row's dot of out and d_out (attention_dots.h,
// launched before):
//
//   d_v = P^T d_out    d_s = P (G - D) / sqrt(head size)    d_q = d_s k    d_k = d_s^T q
//
// P and d_s are rounded to S where they enter a product; the rest is FP32. No two blocks write to
// one place and each sums in a fixed order, so that the same input gives the same bits: a kernel
// whose blocks own keys and walk over queries (d_k, d_v), and one whose blocks own queries and walk
// over keys (d_q). The price is that logits and G are computed twice: seven products, not five.
//
// AttentionKeyGradients holds its tiles transposed, keys down and queries across: the accumulators
// of k q^T and v d_out^T are then the left operands of the products for d_v and d_k as they are.
//
// A block is four warps and 64 keys (queries). Tiles of the other side are 64 rows for head size 64
// and 32 for 128, which keeps all accumulators in registers. By nvcc 13.0, with nothing spilled:
//
//                head size   registers a thread, sm_80, sm_90   shared bytes a block   blocks
//   d_k, d_v     64                              220     216                  56,320        2
//                128                             239     241                  70,144        2
//   d_q          64                              168     168                  55,296     2, 3
//                128                             232     236                  69,632        2
#pragma once

#include "worker_runtime/cuda/kernels/attention.h"
#include "worker_runtime/cuda/kernels/attention_dots.h"

namespace muster::runtime::cuda {

template <class S>
struct AttentionBackwardArgs {
  const S* qkv;       // [batch][time][3 * heads * head_size]
  const S* d_out;     // [batch][time][heads * head_size]
  const float* lse;   // [batch][heads][time]
  const float* dots;  // [batch][heads][time]
  S* d_qkv;           // as qkv; each kernel writes its own part
  AttentionSize size;
};

template <unsigned kHead>
inline constexpr unsigned kGradientTile = kHead == 64 ? 64 : 32;

// Of one lane while it works on a tile: both factors of d_s, and the products' operands.
template <unsigned kColumns>
struct GradientTile {
  static constexpr unsigned kTiles = kColumns / kMmaN;
  float p[kTiles][4];    // logits, then probabilities
  float d_s[kTiles][4];  // G, then d_s
  std::uint32_t p_packed[kTiles / 2][4];
  std::uint32_t d_s_packed[kTiles / 2][4];
  std::uint32_t b[4];

  MUSTER_KERNEL_CODE void clear() {
    MUSTER_UNROLL
    for (unsigned n = 0; n < kTiles; ++n) {
      MUSTER_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        p[n][i] = d_s[n][i] = 0.0F;
    }
  }
};

// One element: its logit becomes its probability, its G its d_s. lse2 = lse / ln 2.
template <unsigned kHead>
MUSTER_KERNEL_CODE void gradient_element(bool visible, float lse2, float dot, float& p,
                                         float& d_s) {
  constexpr float kScale = kAttentionScale<kHead>;
  p = visible ? power_of_two(numerics::multiply_add(p, kScale * kLog2E, -lse2)) : 0.0F;
  d_s = p * (d_s - dot) * kScale;
}

// d_k and d_v of the block's keys.
template <class S, unsigned kHead>
struct AttentionKeyGradients {
  static constexpr unsigned kThreads = kAttentionThreads;
  static constexpr unsigned kQueries = kGradientTile<kHead>;  // of a tile
  using Args = AttentionBackwardArgs<S>;
  struct Shared {
    Tile<S, kAttentionRows, kHead> k, v;
    Tile<S, kQueries, kHead> q[2], d_out[2];
    float lse[2][kQueries], dots[2][kQueries];
  };
  struct State {
    float d_k[kHead / kMmaN][4];
    float d_v[kHead / kMmaN][4];
    GradientTile<kQueries> tile;
    std::uint32_t a[4];
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    const unsigned time = a.size.time;
    const std::size_t width = a.size.width();
    const HeadPlace place = head_place(a.size, block.y());
    const S* q = a.qkv + place.qkv;
    const unsigned first = block.x() * kAttentionRows;
    Shared& shared = block.template shared<Shared>();
    auto states = block.template per_thread<State>();

    const unsigned tiles = blocks_for(time, kQueries);
    unsigned tile = first / kQueries;
    const auto copy_queries = [&](Thread t, unsigned which) {
      const unsigned row = which * kQueries;
      const unsigned buffer = which % 2;
      copy_tile<kThreads>(block, t, shared.q[buffer], q, 3 * width, row, time);
      copy_tile<kThreads>(block, t, shared.d_out[buffer], a.d_out + place.out, width, row, time);
      copy_rows(block, t, shared, buffer, a, place.rows, row);
    };
    block.template copies<0>([&](Thread t) {
      copy_tile<kThreads>(block, t, shared.k, q + width, 3 * width, first, time);
      copy_tile<kThreads>(block, t, shared.v, q + 2 * width, 3 * width, first, time);
      copy_queries(t, tile);
    });
    for (; tile < tiles; ++tile) {
      block.template copies<1>([&](Thread t) {
        if (tile + 1 < tiles) copy_queries(t, tile + 1);
      });
      block.warps([&](auto& warp) {
        make_gradients(warp, states, shared, tile, first);
        add_products(warp, states, shared, tile % 2);
      });
    }
    store(block, states, shared, a.d_qkv + place.qkv, a.size, first);
  }

 private:
  // Queries that do not exist get lse 0 and with it probabilities of 1, but they have no d_out, and
  // so no part in d_v, and d_s = 0.
  template <class Block>
  MUSTER_KERNEL_CODE static void copy_rows(Block& block, Thread t, Shared& shared, unsigned buffer,
                                           const Args& a, std::size_t rows, unsigned first) {
    if (t.index >= kQueries) return;
    const unsigned row = first + t.index;
    const bool exists = row < a.size.time;
    const std::size_t source = rows + (exists ? row : 0);
    block.copy_word(&shared.lse[buffer][t.index], a.lse + source, exists);
    block.copy_word(&shared.dots[buffer][t.index], a.dots + source, exists);
  }

  template <class Warp, class States>
  MUSTER_KERNEL_CODE static void make_gradients(Warp& warp, States& states, const Shared& shared,
                                                unsigned tile, unsigned first) {
    const unsigned buffer = tile % 2;
    const unsigned own_rows = warp.index() * kMmaM;
    warp.each([&](Thread t) { states[t].tile.clear(); });
    MUSTER_UNROLL
    for (unsigned k = 0; k < kHead / kMmaK; ++k) {
      load_left(warp, shared.k, own_rows, k, [&](Thread t) { return states[t].a; });
      times_rows<S, kQueries / kMmaN>(warp, shared.q[buffer], k, [&](Thread t) {
        State& s = states[t];
        return StepOperands{s.a, s.tile.b, s.tile.p};
      });
      load_left(warp, shared.v, own_rows, k, [&](Thread t) { return states[t].a; });
      times_rows<S, kQueries / kMmaN>(warp, shared.d_out[buffer], k, [&](Thread t) {
        State& s = states[t];
        return StepOperands{s.a, s.tile.b, s.tile.d_s};
      });
    }
    warp.each([&](Thread t) {
      auto& own = states[t].tile;
      MUSTER_UNROLL
      for (unsigned n = 0; n < kQueries / kMmaN; ++n) {
        MUSTER_UNROLL
        for (unsigned i = 0; i < 4; ++i) {
          const MmaPlace at = mma_c_place(t.lane(), i);
          const unsigned column = n * kMmaN + at.column;
          const bool visible = first + own_rows + at.row <= tile * kQueries + column;
          gradient_element<kHead>(visible, shared.lse[buffer][column] * kLog2E,
                                  shared.dots[buffer][column], own.p[n][i], own.d_s[n][i]);
        }
      }
      pack_accumulators<S>(own.p, own.p_packed);
      pack_accumulators<S>(own.d_s, own.d_s_packed);
    });
  }

  template <class Warp, class States>
  MUSTER_KERNEL_CODE static void add_products(Warp& warp, States& states, const Shared& shared,
                                              unsigned buffer) {
    MUSTER_UNROLL
    for (unsigned k = 0; k < kQueries / kMmaK; ++k) {
      times_columns<S, kHead / kMmaN>(warp, shared.d_out[buffer], k, [&](Thread t) {
        State& s = states[t];
        return StepOperands{s.tile.p_packed[k], s.tile.b, s.d_v};
      });
      times_columns<S, kHead / kMmaN>(warp, shared.q[buffer], k, [&](Thread t) {
        State& s = states[t];
        return StepOperands{s.tile.d_s_packed[k], s.tile.b, s.d_k};
      });
    }
  }

  template <class Block, class States>
  MUSTER_KERNEL_CODE static void store(Block& block, States& states, Shared& shared, S* d_q,
                                       const AttentionSize& size, unsigned first) {
    block.each([&](Thread t) {
      const unsigned own_rows = t.index / kWarp * kMmaM;
      store_accumulators(t, shared.k, own_rows, states[t].d_k, 1.0F, 1.0F);
      store_accumulators(t, shared.v, own_rows, states[t].d_v, 1.0F, 1.0F);
    });
    block.each([&](Thread t) {
      const std::size_t width = size.width();
      store_tile<kThreads>(t, shared.k, d_q + width, 3 * width, first, size.time);
      store_tile<kThreads>(t, shared.v, d_q + 2 * width, 3 * width, first, size.time);
    });
  }
};

// d_q of the block's queries.
template <class S, unsigned kHead>
struct AttentionQueryGradient {
  static constexpr unsigned kThreads = kAttentionThreads;
  static constexpr unsigned kKeys = kGradientTile<kHead>;  // of a tile
  using Args = AttentionBackwardArgs<S>;
  struct Shared {
    Tile<S, kAttentionRows, kHead> q, d_out;
    Tile<S, kKeys, kHead> k[2], v[2];
  };
  struct State {
    std::uint32_t q[kHead / kMmaK][4];
    std::uint32_t d_out[kHead / kMmaK][4];
    float d_q[kHead / kMmaN][4];
    GradientTile<kKeys> tile;
    float lse2[2];  // of rows lane / 4 and lane / 4 + 8 of the warp's sixteen
    float dots[2];
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    const unsigned time = a.size.time;
    const std::size_t width = a.size.width();
    const HeadPlace place = head_place(a.size, block.y());
    const S* q = a.qkv + place.qkv;
    // The rows with most keys start first.
    const unsigned first = (blocks_for(time, kAttentionRows) - 1 - block.x()) * kAttentionRows;
    const unsigned past = first + kAttentionRows < time ? first + kAttentionRows : time;
    const unsigned tiles = blocks_for(past, kKeys);
    Shared& shared = block.template shared<Shared>();
    auto states = block.template per_thread<State>();

    const auto copy_keys = [&](Thread t, unsigned tile) {
      copy_tile<kThreads>(block, t, shared.k[tile % 2], q + width, 3 * width, tile * kKeys, time);
      copy_tile<kThreads>(block, t, shared.v[tile % 2], q + 2 * width, 3 * width, tile * kKeys,
                          time);
    };
    block.template copies<0>([&](Thread t) {
      copy_tile<kThreads>(block, t, shared.q, q, 3 * width, first, time);
      copy_tile<kThreads>(block, t, shared.d_out, a.d_out + place.out, width, first, time);
      copy_keys(t, 0);
    });
    block.warps([&](auto& warp) { load_queries(warp, states, shared, a, place.rows, first); });
    for (unsigned tile = 0; tile < tiles; ++tile) {
      block.template copies<1>([&](Thread t) {
        if (tile + 1 < tiles) copy_keys(t, tile + 1);
      });
      block.warps([&](auto& warp) {
        make_gradients(warp, states, shared, tile, first);
        MUSTER_UNROLL
        for (unsigned k = 0; k < kKeys / kMmaK; ++k)
          times_columns<S, kHead / kMmaN>(warp, shared.k[tile % 2], k, [&](Thread t) {
            State& s = states[t];
            return StepOperands{s.tile.d_s_packed[k], s.tile.b, s.d_q};
          });
      });
    }
    block.each([&](Thread t) {
      store_accumulators(t, shared.q, t.index / kWarp * kMmaM, states[t].d_q, 1.0F, 1.0F);
    });
    block.each([&](Thread t) {
      store_tile<kThreads>(t, shared.q, a.d_qkv + place.qkv, 3 * width, first, time);
    });
  }

 private:
  // What queries get that do not exist does not matter: they are not stored.
  template <class Warp, class States>
  MUSTER_KERNEL_CODE static void load_queries(Warp& warp, States& states, const Shared& shared,
                                              const Args& a, std::size_t rows, unsigned first) {
    const unsigned own_rows = warp.index() * kMmaM;
    MUSTER_UNROLL
    for (unsigned k = 0; k < kHead / kMmaK; ++k) {
      load_left(warp, shared.q, own_rows, k, [&](Thread t) { return states[t].q[k]; });
      load_left(warp, shared.d_out, own_rows, k, [&](Thread t) { return states[t].d_out[k]; });
    }
    warp.each([&](Thread t) {
      MUSTER_UNROLL
      for (unsigned r = 0; r < 2; ++r) {
        const unsigned row = first + own_rows + t.lane() / 4 + r * 8;
        const bool exists = row < a.size.time;
        states[t].lse2[r] = exists ? a.lse[rows + row] * kLog2E : 0.0F;
        states[t].dots[r] = exists ? a.dots[rows + row] : 0.0F;
      }
    });
  }

  template <class Warp, class States>
  MUSTER_KERNEL_CODE static void make_gradients(Warp& warp, States& states, const Shared& shared,
                                                unsigned tile, unsigned first) {
    warp.each([&](Thread t) { states[t].tile.clear(); });
    MUSTER_UNROLL
    for (unsigned k = 0; k < kHead / kMmaK; ++k) {
      times_rows<S, kKeys / kMmaN>(warp, shared.k[tile % 2], k, [&](Thread t) {
        State& s = states[t];
        return StepOperands{s.q[k], s.tile.b, s.tile.p};
      });
      times_rows<S, kKeys / kMmaN>(warp, shared.v[tile % 2], k, [&](Thread t) {
        State& s = states[t];
        return StepOperands{s.d_out[k], s.tile.b, s.tile.d_s};
      });
    }
    warp.each([&](Thread t) {
      State& s = states[t];
      MUSTER_UNROLL
      for (unsigned n = 0; n < kKeys / kMmaN; ++n) {
        MUSTER_UNROLL
        for (unsigned i = 0; i < 4; ++i) {
          const MmaPlace at = mma_c_place(t.lane(), i);
          const bool visible =
              tile * kKeys + n * kMmaN + at.column <= first + warp.index() * kMmaM + at.row;
          gradient_element<kHead>(visible, s.lse2[i / 2], s.dots[i / 2], s.tile.p[n][i],
                                  s.tile.d_s[n][i]);
        }
      }
      pack_accumulators<S>(s.tile.d_s, s.tile.d_s_packed);
    });
  }
};

}  // namespace muster::runtime::cuda
