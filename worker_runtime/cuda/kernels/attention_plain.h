// SPDX-License-Identifier: Apache-2.0
//
// Causal self-attention without tensor cores: any head size from 1 to 256 and any format; the
// arguments and numbers are those of attention.h and attention_backward.h. A warp works on one row
// (forward and d_q: a query; d_k and d_v: a key), each lane on every 32nd element of it, and walks
// over the rows of the other side in order: no shared memory, no atomics, the same bits on every
// device and on the host.
#pragma once

#include "worker_runtime/cuda/kernels/attention_backward.h"

namespace muster::runtime::cuda {

inline constexpr unsigned kPlainThreads = 128;
inline constexpr unsigned kPlainRows = kPlainThreads / kWarp;  // of a block
inline constexpr unsigned kPlainHead = 256;                    // at most
inline constexpr unsigned kPlainEach = kPlainHead / kWarp;     // elements of a lane

inline Grid plain_attention_grid(const AttentionSize& size, unsigned batch) {
  return {blocks_for(size.time, kPlainRows), batch * size.heads};
}

// As to_number, but for the bits of a NaN; one instruction on a device.
template <class S>
MUSTER_KERNEL_CODE float widened(S x) {
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<S, F16>) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
  }
#endif
  return to_number(x);
}

// A lane's part of a row: elements lane, lane + 32, …; zero beyond the head.
template <class S>
MUSTER_KERNEL_CODE void load_row(Thread t, const S* row, unsigned head_size,
                                 float (&out)[kPlainEach]) {
  MUSTER_UNROLL
  for (unsigned i = 0; i < kPlainEach; ++i) {
    const unsigned at = i * kWarp + t.lane();
    out[i] = at < head_size ? widened(row[at]) : 0.0F;
  }
}
template <class S>
MUSTER_KERNEL_CODE void store_row(Thread t, const float (&in)[kPlainEach], float factor,
                                  unsigned head_size, S* row) {
  MUSTER_UNROLL
  for (unsigned i = 0; i < kPlainEach; ++i) {
    const unsigned at = i * kWarp + t.lane();
    if (at < head_size) row[at] = stored<S>(in[i] * factor);
  }
}

MUSTER_KERNEL_CODE float row_dot(const float (&x)[kPlainEach], const float (&y)[kPlainEach]) {
  float dot = 0.0F;
  MUSTER_UNROLL
  for (unsigned i = 0; i < kPlainEach; ++i)
    dot = numerics::multiply_add(x[i], y[i], dot);
  return dot;
}
// sum += factor * x.
MUSTER_KERNEL_CODE void row_add(float factor, const float (&x)[kPlainEach],
                                float (&sum)[kPlainEach]) {
  MUSTER_UNROLL
  for (unsigned i = 0; i < kPlainEach; ++i)
    sum[i] = numerics::multiply_add(factor, x[i], sum[i]);
}

// Runs f(warp, row) for each of the block's rows that exists, a warp a row.
template <class Block, class F>
MUSTER_KERNEL_CODE void plain_rows(Block& block, unsigned time, F f) {
  block.warps([&](auto& warp) {
    const unsigned row = block.x() * kPlainRows + warp.index();
    if (row < time) f(warp, row);
  });
}

template <class S>
struct PlainAttention {
  static constexpr unsigned kThreads = kPlainThreads;
  using Shared = NoShared;
  using Args = AttentionArgs<S>;
  struct State {
    float q[kPlainEach], out[kPlainEach];
    float max, sum, logit;
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    const AttentionSize& size = a.size;
    const std::size_t stride = 3 * size.width();
    const HeadPlace place = head_place(size, block.y());
    const S* q = a.qkv + place.qkv;
    const S* k = q + size.width();
    const S* v = k + size.width();
    const float scale = attention_scale(size.head_size);
    auto states = block.template per_thread<State>();
    plain_rows(block, size.time, [&](auto& warp, unsigned row) {
      warp.each([&](Thread t) {
        load_row(t, q + row * stride, size.head_size, states[t].q);
        states[t].max = kMinusInfinity;
      });
      for (unsigned key = 0; key <= row; ++key) {
        warp.each([&](Thread t) {
          float x[kPlainEach];
          load_row(t, k + key * stride, size.head_size, x);
          states[t].logit = row_dot(states[t].q, x);
        });
        warp.sum([&](Thread t) -> float& { return states[t].logit; });
        warp.each([&](Thread t) {
          float x[kPlainEach];
          load_row(t, v + key * stride, size.head_size, x);
          add_key(states[t], states[t].logit * scale, x);
        });
      }
      warp.each([&](Thread t) {
        const State& s = states[t];
        store_row(t, s.out, 1.0F / s.sum, size.head_size, a.out + place.out + row * size.width());
        if (t.lane() == 0) a.lse[place.rows + row] = s.max + numerics::log(s.sum);
      });
    });
  }

 private:
  MUSTER_KERNEL_CODE static void add_key(State& s, float logit, const float (&v)[kPlainEach]) {
    const float max = logit > s.max ? logit : s.max;
    const float rescale = numerics::exp(s.max - max);
    const float p = numerics::exp(logit - max);
    s.max = max;
    s.sum = s.sum * rescale + p;
    MUSTER_UNROLL
    for (unsigned i = 0; i < kPlainEach; ++i)
      s.out[i] = s.out[i] * rescale;
    row_add(rounded<S>(p), v, s.out);
  }
};

// Of a query and a key: what d_s is made of, summed over the warp.
struct PlainPair {
  float logit, gradient;
};
// Leaves the probability in `logit` and d_s in `gradient`.
MUSTER_KERNEL_CODE void finish_pair(PlainPair& pair, float scale, float lse, float dot) {
  pair.logit = numerics::exp(pair.logit * scale - lse);
  pair.gradient = pair.logit * (pair.gradient - dot) * scale;
}

template <class S>
struct PlainKeyGradients {
  static constexpr unsigned kThreads = kPlainThreads;
  using Shared = NoShared;
  using Args = AttentionBackwardArgs<S>;
  struct State {
    float k[kPlainEach], v[kPlainEach], q[kPlainEach], d_out[kPlainEach];
    float d_k[kPlainEach], d_v[kPlainEach];
    PlainPair pair;
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    const AttentionSize& size = a.size;
    const std::size_t width = size.width();
    const std::size_t stride = 3 * width;
    const HeadPlace place = head_place(size, block.y());
    const float scale = attention_scale(size.head_size);
    auto states = block.template per_thread<State>();
    plain_rows(block, size.time, [&](auto& warp, unsigned row) {
      const std::size_t own = place.qkv + row * stride;
      warp.each([&](Thread t) {
        load_row(t, a.qkv + own + width, size.head_size, states[t].k);
        load_row(t, a.qkv + own + 2 * width, size.head_size, states[t].v);
      });
      for (unsigned query = row; query < size.time; ++query) {
        warp.each([&](Thread t) {
          State& s = states[t];
          load_row(t, a.qkv + place.qkv + query * stride, size.head_size, s.q);
          load_row(t, a.d_out + place.out + query * width, size.head_size, s.d_out);
          s.pair = {row_dot(s.q, s.k), row_dot(s.d_out, s.v)};
        });
        warp.sum([&](Thread t) -> float& { return states[t].pair.logit; });
        warp.sum([&](Thread t) -> float& { return states[t].pair.gradient; });
        warp.each([&](Thread t) {
          State& s = states[t];
          finish_pair(s.pair, scale, a.lse[place.rows + query], a.dots[place.rows + query]);
          row_add(rounded<S>(s.pair.logit), s.d_out, s.d_v);
          row_add(rounded<S>(s.pair.gradient), s.q, s.d_k);
        });
      }
      warp.each([&](Thread t) {
        store_row(t, states[t].d_k, 1.0F, size.head_size, a.d_qkv + own + width);
        store_row(t, states[t].d_v, 1.0F, size.head_size, a.d_qkv + own + 2 * width);
      });
    });
  }
};

template <class S>
struct PlainQueryGradient {
  static constexpr unsigned kThreads = kPlainThreads;
  using Shared = NoShared;
  using Args = AttentionBackwardArgs<S>;
  struct State {
    float q[kPlainEach], d_out[kPlainEach], k[kPlainEach], d_q[kPlainEach];
    PlainPair pair;
  };

  template <class Block>
  MUSTER_KERNEL_CODE static void run(Block& block, const Args& a) {
    const AttentionSize& size = a.size;
    const std::size_t width = size.width();
    const std::size_t stride = 3 * width;
    const HeadPlace place = head_place(size, block.y());
    const float scale = attention_scale(size.head_size);
    auto states = block.template per_thread<State>();
    plain_rows(block, size.time, [&](auto& warp, unsigned row) {
      const std::size_t own = place.qkv + row * stride;
      warp.each([&](Thread t) {
        load_row(t, a.qkv + own, size.head_size, states[t].q);
        load_row(t, a.d_out + place.out + row * width, size.head_size, states[t].d_out);
      });
      for (unsigned key = 0; key <= row; ++key) {
        const std::size_t other = place.qkv + key * stride;
        warp.each([&](Thread t) {
          State& s = states[t];
          float v[kPlainEach];
          load_row(t, a.qkv + other + width, size.head_size, s.k);
          load_row(t, a.qkv + other + 2 * width, size.head_size, v);
          s.pair = {row_dot(s.q, s.k), row_dot(s.d_out, v)};
        });
        warp.sum([&](Thread t) -> float& { return states[t].pair.logit; });
        warp.sum([&](Thread t) -> float& { return states[t].pair.gradient; });
        warp.each([&](Thread t) {
          State& s = states[t];
          finish_pair(s.pair, scale, a.lse[place.rows + row], a.dots[place.rows + row]);
          row_add(rounded<S>(s.pair.gradient), s.k, s.d_q);
        });
      }
      warp.each(
          [&](Thread t) { store_row(t, states[t].d_q, 1.0F, size.head_size, a.d_qkv + own); });
    });
  }
};

}  // namespace muster::runtime::cuda
