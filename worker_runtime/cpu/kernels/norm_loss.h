// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm and the fused softmax cross-entropy; see kernels.h.
#pragma once

#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cpu/kernels/memory.h"

namespace muster::runtime {
namespace {

// Zeroes the lanes beyond a short tail, where an expression of zeroes is not zero.
template <class V>
MUSTER_LANES V only(const V& x, std::size_t lanes) {
  if (lanes == kLanes) return x;
  return select(first_lanes(x, lanes), x, V(typename V::Number{0}));
}

inline constexpr double kLayerNormEpsilon = 1e-5;

template <class S, class A>
void layernorm(const S* x, const A* weight, const A* bias, S* y, A* mean, A* rstd, std::size_t rows,
               std::size_t width) {
  using V = Lanes<A>;
  const A size = static_cast<A>(width);
  for (std::size_t r = 0; r < rows; ++r, x += width, y += width) {
    const A average = sum_lanes<V>(
                          width, MUSTER_BODY { return load(x + i, n); }) /
                      size;
    const V center(average);
    const A variance = sum_lanes<V>(
                           width,
                           MUSTER_BODY {
                             const V d = only(load(x + i, n) - center, n);
                             return d * d;
                           }) /
                       size;
    const A scale = A{1} / numerics::square_root(variance + static_cast<A>(kLayerNormEpsilon));
    const V spread(scale);
    for_lanes(
        width, MUSTER_BODY {
          const V normal = (load(x + i, n) - center) * spread;
          store(y + i, multiply_add(normal, load(weight + i, n), load(bias + i, n)), n);
        });
    mean[r] = average;
    rstd[r] = scale;
  }
}

// One row: adds to the column sums and writes dx.
template <class S, class A>
MUSTER_LANES void layernorm_row(const S* x, const A* weight, A mean, A rstd, const A* dy,
                                bool replace, S* dx, A* weight_sum, A* bias_sum,
                                std::size_t width) {
  using V = Lanes<A>;
  const V center(mean);
  const V spread(rstd);
  V direct(A{0});  // sum of dy * weight
  V along(A{0});   // sum of dy * weight * normal
  for_lanes(
      width, MUSTER_BODY {
        const V normal = only((load(x + i, n) - center) * spread, n);
        const V gradient = rounded<S>(load(dy + i, n));
        store(weight_sum + i, multiply_add(gradient, normal, load(weight_sum + i, n)), n);
        store(bias_sum + i, load(bias_sum + i, n) + gradient, n);
        const V scaled = gradient * load(weight + i, n);
        direct = direct + scaled;
        along = multiply_add(scaled, normal, along);
      });
  const V direct_mean(lane_sum(direct) / static_cast<A>(width));
  const V along_mean(lane_sum(along) / static_cast<A>(width));
  for_lanes(
      width, MUSTER_BODY {
        const V normal = (load(x + i, n) - center) * spread;
        const V scaled = rounded<S>(load(dy + i, n)) * load(weight + i, n);
        const V gradient = (scaled - direct_mean - normal * along_mean) * spread;
        store(dx + i, replace ? gradient : load(dx + i, n) + gradient, n);
      });
}

template <class S, class A>
void layernorm_backward(const S* x, const A* weight, const A* mean, const A* rstd, const A* dy,
                        bool replace, S* dx, A* dweight, A* dbias, A* scratch, std::size_t rows,
                        std::size_t width) {
  A* weight_sum = scratch;
  A* bias_sum = scratch + width;
  for (std::size_t start = 0; start < rows; start += numerics::kRowBlock) {
    const std::size_t end = smaller(rows, start + numerics::kRowBlock);
    for (std::size_t i = 0; i < 2 * width; ++i)
      scratch[i] = 0;
    for (std::size_t r = start; r < end; ++r) {
      layernorm_row<S, A>(x + r * width, weight, mean[r], rstd[r], dy + r * width, replace,
                          dx + r * width, weight_sum, bias_sum, width);
    }
    for_lanes(
        width, MUSTER_BODY {
          store(dweight + i, load(dweight + i, n) + load(weight_sum + i, n), n);
          store(dbias + i, load(dbias + i, n) + load(bias_sum + i, n), n);
        });
  }
}

// Loss of one row; leaves exp(logit - maximum) in `logits` and returns their sum in `sum`.
template <class A>
MUSTER_LANES A row_loss(A* logits, std::size_t vocabulary, std::size_t target, A& sum) {
  using V = Lanes<A>;
  V largest(logits[0]);
  for_lanes(
      vocabulary, MUSTER_BODY {
        const V x = load(logits + i, n);
        const V candidate = n == kLanes ? x : select(first_lanes(x, n), x, largest);
        largest = larger(candidate, largest);
      });
  const A maximum = lane_max(largest);
  const A aim = logits[target];
  const V shift(maximum);
  sum = sum_lanes<V>(
      vocabulary, MUSTER_BODY {
        const V e = only(exp_of(load(logits + i, n) - shift), n);
        store(logits + i, e, n);
        return e;
      });
  return numerics::log(sum) + (maximum - aim);
}

template <class S, class A>
double cross_entropy(A* logits, const std::int32_t* targets, std::size_t target_stride,
                     std::size_t time, std::size_t first_row, std::size_t rows,
                     std::size_t vocabulary, A scale, S* dlogits) {
  using V = Lanes<A>;
  double total = 0;
  for (std::size_t r = 0; r < rows; ++r, logits += vocabulary) {
    const std::size_t row = first_row + r;
    const auto target = static_cast<std::size_t>(targets[row / time * target_stride + row % time]);
    A sum = 0;
    total += static_cast<double>(row_loss(logits, vocabulary, target, sum));
    if (dlogits == nullptr) continue;
    const V factor(A{1} / sum);
    logits[target] = logits[target] - sum;  // (e - sum) / sum = softmax - 1
    for_lanes(
        vocabulary,
        MUSTER_BODY { store(dlogits + i, load(logits + i, n) * factor * V(scale), n); });
    dlogits += vocabulary;
  }
  return total;
}

}  // namespace
}  // namespace muster::runtime
