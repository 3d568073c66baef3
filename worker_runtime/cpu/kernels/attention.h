// SPDX-License-Identifier: Apache-2.0
//
// Causal self-attention of one sequence, head by head, in blocks of query rows, so that memory
// grows with the context and not with its square; see kernels.h. Softmax is FP32; probabilities
// and their gradients are rounded to S where they enter a product.
#pragma once

#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cpu/kernels/product.h"

namespace muster::runtime {
namespace {

// One head's part of a [time][stride] matrix: dense rows of `padded` (zeroes at the end), or
// transposed to [head_size][padded].
template <class S, class In, class A>
void gather(const In* in, std::size_t stride, std::size_t time, std::size_t size,
            std::size_t padded, A* out) {
  for (std::size_t t = 0; t < time; ++t, in += stride, out += padded) {
    for_lanes(
        size, MUSTER_BODY { store(out + i, rounded<S>(load(in + i, n))); });
  }
}
// `rows` [time][row_width] to `out` [size][padded], zero beyond `time`.
template <class A>
void transpose(const A* rows, std::size_t row_width, std::size_t time, std::size_t size,
               std::size_t padded, A* out) {
  for (std::size_t d = 0; d < size; ++d) {
    for (std::size_t t = 0; t < padded; ++t)
      out[d * padded + t] = t < time ? rows[t * row_width + d] : A{0};
  }
}
template <class S, class A>
void scatter(const A* in, std::size_t rows, std::size_t size, std::size_t padded, S* out,
             std::size_t stride) {
  for (std::size_t r = 0; r < rows; ++r, in += padded, out += stride) {
    for_lanes(
        size, MUSTER_BODY { store(out + i, load(in + i), n); });
  }
}

// Softmax of one row of scores of which `valid` count, in place; [valid, columns) becomes 0.
// With `known`, stats holds {maximum, 1 / sum} already.
template <class A>
MUSTER_LANES void softmax_row(A* row, std::size_t valid, std::size_t columns, A scale, bool known,
                              A* stats) {
  using V = Lanes<A>;
  const V factor(scale);
  if (!known) {
    V largest(row[0] * scale);
    for_lanes(
        valid, MUSTER_BODY {
          const V x = load(row + i) * factor;
          largest = larger(n == kLanes ? x : select(first_lanes(x, n), x, largest), largest);
        });
    stats[0] = lane_max(largest);
  }
  const V shift(stats[0]);
  V sum(A{0});
  for_lanes(
      valid, MUSTER_BODY {
        const V e = only(exp_of(load(row + i) * factor - shift), n);
        store(row + i, e);
        sum = sum + e;
      });
  if (!known) stats[1] = A{1} / lane_sum(sum);
  const V normal(stats[1]);
  const std::size_t end = round_up_lanes(valid);
  for (std::size_t i = 0; i < end; i += kLanes)
    store(row + i, load(row + i) * normal);
  for (std::size_t i = end; i < columns; i += kLanes)
    store(row + i, V(A{0}));
}

template <class S, class A>
MUSTER_LANES void round_all(const A* in, A* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kLanes)
    store(out + i, rounded<S>(load(in + i)));
}

// A bump allocator over the scratch that the caller gave.
template <class A>
struct Scratch {
  A* next;
  A* take(std::size_t count) {
    A* p = next;
    next += count;
    return p;
  }
};

template <class S, class A>
void attention(const AttentionShape& shape, const S* qkv, S* out, A* stats, A* scratch) {
  const std::size_t time = shape.time;
  const std::size_t size = shape.head_size;
  const std::size_t width = shape.heads * size;
  const std::size_t columns = round_up_lanes(time);
  const std::size_t padded = round_up_lanes(size);
  const A scale = static_cast<A>(1.0 / __builtin_sqrt(static_cast<double>(size)));
  Scratch<A> memory{scratch};
  A* q = memory.take(time * padded);
  A* k = memory.take(time * padded);
  A* v = memory.take(time * padded);
  A* k_t = memory.take(size * columns);
  A* p = memory.take(kQueryBlock * columns);
  A* o = memory.take(kQueryBlock * padded);
  for (std::size_t h = 0; h < shape.heads; ++h, stats += 2 * time) {
    gather<S>(qkv + h * size, 3 * width, time, size, padded, q);
    gather<S>(qkv + width + h * size, 3 * width, time, size, padded, k);
    gather<S>(qkv + 2 * width + h * size, 3 * width, time, size, padded, v);
    transpose(k, padded, time, size, columns, k_t);
    for (std::size_t first = 0; first < time; first += kQueryBlock) {
      const std::size_t rows = smaller(kQueryBlock, time - first);
      const std::size_t seen = round_up_lanes(first + rows);
      panel(Left<A>{q + first * padded, padded, 1}, k_t, columns, p, columns, rows, seen, 0, size,
            false);
      for (std::size_t r = 0; r < rows; ++r) {
        softmax_row(p + r * columns, first + r + 1, seen, scale, false, stats + 2 * (first + r));
        round_all<S>(p + r * columns, p + r * columns, seen);
      }
      panel(Left<A>{p, columns, 1}, v, padded, o, padded, rows, padded, 0, first + rows, false);
      scatter(o, rows, size, padded, out + first * width + h * size, width);
    }
  }
}

// Everything of one head that the backward pass touches.
template <class A>
struct HeadGradient {
  std::size_t time, size, columns, padded;
  A scale;
  A *q, *k, *k_t, *v_t, *d_out, *p, *p_rounded, *d_p, *d_q, *d_k, *d_v;
};

// Query rows [first, first + rows): recomputes probabilities, leaves dq of the block in d_q and
// adds to d_k and d_v.
template <class S, class A>
void attention_block_backward(const HeadGradient<A>& g, std::size_t first, std::size_t rows,
                              const A* stats) {
  using V = Lanes<A>;
  const std::size_t end = first + rows;
  const std::size_t seen = round_up_lanes(end);
  panel(Left<A>{g.q + first * g.padded, g.padded, 1}, g.k_t, g.columns, g.p, g.columns, rows, seen,
        0, g.size, false);
  panel(Left<A>{g.d_out + first * g.padded, g.padded, 1}, g.v_t, g.columns, g.d_p, g.columns, rows,
        seen, 0, g.size, false);
  for (std::size_t r = 0; r < rows; ++r) {
    A* p = g.p + r * g.columns;
    A* d_p = g.d_p + r * g.columns;
    A row_stats[2] = {stats[2 * (first + r)], stats[2 * (first + r) + 1]};
    softmax_row(p, first + r + 1, seen, g.scale, true, static_cast<A*>(row_stats));
    round_all<S>(p, g.p_rounded + r * g.columns, seen);
    const V dot(sum_lanes<V>(
        seen, MUSTER_BODY { return load(p + i, n) * load(d_p + i, n); }));
    for (std::size_t i = 0; i < seen; i += kLanes) {
      const V gradient = load(p + i) * (load(d_p + i) - dot) * V(g.scale);
      store(d_p + i, rounded<S>(gradient));
    }
  }
  panel(Left<A>{g.d_p, g.columns, 1}, g.k, g.padded, g.d_q, g.padded, rows, g.padded, 0, end,
        false);
  const A* q = g.q + first * g.padded;
  const A* d_out = g.d_out + first * g.padded;
  panel(Left<A>{g.d_p, 1, g.columns}, q, g.padded, g.d_k, g.padded, end, g.padded, 0, rows, true);
  panel(Left<A>{g.p_rounded, 1, g.columns}, d_out, g.padded, g.d_v, g.padded, end, g.padded, 0,
        rows, true);
}

template <class S, class A>
void attention_backward(const AttentionShape& shape, const S* qkv, const A* stats, const A* dout,
                        S* dqkv, A* scratch) {
  const std::size_t time = shape.time;
  const std::size_t size = shape.head_size;
  const std::size_t width = shape.heads * size;
  const std::size_t columns = round_up_lanes(time);
  const std::size_t padded = round_up_lanes(size);
  Scratch<A> memory{scratch};
  HeadGradient<A> g{};
  g.time = time, g.size = size, g.columns = columns, g.padded = padded;
  g.scale = static_cast<A>(1.0 / __builtin_sqrt(static_cast<double>(size)));
  g.q = memory.take(time * padded);
  g.k = memory.take(time * padded);
  g.d_out = memory.take(time * padded);
  g.d_k = memory.take(time * padded);
  g.d_v = memory.take(time * padded);
  g.p = memory.take(kQueryBlock * columns);
  g.p_rounded = memory.take(kQueryBlock * columns);
  g.d_p = memory.take(kQueryBlock * columns);
  g.k_t = memory.take(size * columns);
  g.v_t = memory.take(size * columns);
  g.d_q = memory.take(kQueryBlock * padded);
  for (std::size_t h = 0; h < shape.heads; ++h, stats += 2 * time) {
    const std::size_t offset = h * size;
    gather<S>(qkv + 2 * width + offset, 3 * width, time, size, padded, g.k);
    transpose(g.k, padded, time, size, columns, g.v_t);  // values pass through k's place
    gather<S>(qkv + width + offset, 3 * width, time, size, padded, g.k);
    transpose(g.k, padded, time, size, columns, g.k_t);
    gather<S>(qkv + offset, 3 * width, time, size, padded, g.q);
    gather<S>(dout + offset, width, time, size, padded, g.d_out);
    for (std::size_t i = 0; i < time * padded; ++i)
      g.d_k[i] = g.d_v[i] = 0;
    for (std::size_t first = 0; first < time; first += kQueryBlock) {
      const std::size_t rows = smaller(kQueryBlock, time - first);
      attention_block_backward<S>(g, first, rows, stats);
      scatter(g.d_q, rows, size, padded, dqkv + first * 3 * width + offset, 3 * width);
    }
    scatter(g.d_k, time, size, padded, dqkv + width + offset, 3 * width);
    scatter(g.d_v, time, size, padded, dqkv + 2 * width + offset, 3 * width);
  }
}

}  // namespace
}  // namespace muster::runtime
