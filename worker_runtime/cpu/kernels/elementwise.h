// SPDX-License-Identifier: Apache-2.0
//
// Elementwise kernels, embeddings and column sums; see kernels.h.
#pragma once

#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cpu/kernels/memory.h"

namespace muster::runtime {
namespace {

template <class S, class A>
void widen(const S* in, A* out, std::size_t count) {
  for_lanes(
      count, MUSTER_BODY { store(out + i, load(in + i, n), n); });
}

template <class S, class A>
void narrow(const A* in, S* out, std::size_t count) {
  for_lanes(
      count, MUSTER_BODY { store(out + i, load(in + i, n), n); });
}

template <class A>
void add(const A* in, A* out, std::size_t count) {
  for_lanes(
      count, MUSTER_BODY { store(out + i, load(out + i, n) + load(in + i, n), n); });
}

template <class S, class A>
void embed(const std::int32_t* tokens, std::size_t token_stride, const A* wte, const A* wpe, S* x,
           std::size_t batch, std::size_t time, std::size_t width) {
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t t = 0; t < time; ++t, x += width) {
      const A* token = wte + static_cast<std::size_t>(tokens[b * token_stride + t]) * width;
      const A* position = wpe + t * width;
      for_lanes(
          width, MUSTER_BODY { store(x + i, load(token + i, n) + load(position + i, n), n); });
    }
  }
}

template <class S, class A>
void embed_backward(const std::int32_t* tokens, std::size_t token_stride, const S* dx, A* dwte,
                    A* dwpe, std::size_t batch, std::size_t time, std::size_t width) {
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t t = 0; t < time; ++t, dx += width) {
      A* token = dwte + static_cast<std::size_t>(tokens[b * token_stride + t]) * width;
      A* position = dwpe + t * width;
      for_lanes(
          width, MUSTER_BODY {
            const auto gradient = load(dx + i, n);
            store(token + i, load(token + i, n) + gradient, n);
            store(position + i, load(position + i, n) + gradient, n);
          });
    }
  }
}

template <class S, class A>
void bias(const A* product, const A* bias, S* out, std::size_t rows, std::size_t width) {
  for (std::size_t r = 0; r < rows; ++r, product += width, out += width) {
    for_lanes(
        width, MUSTER_BODY { store(out + i, load(product + i, n) + load(bias + i, n), n); });
  }
}

template <class S, class A>
void bias_residual(const A* product, const A* bias, const S* residual, S* out, std::size_t rows,
                   std::size_t width) {
  for (std::size_t r = 0; r < rows; ++r, product += width, residual += width, out += width) {
    for_lanes(
        width, MUSTER_BODY {
          store(out + i, load(residual + i, n) + (load(product + i, n) + load(bias + i, n)), n);
        });
  }
}

template <class S, class A>
void bias_gelu(const A* product, const A* bias, S* pre, S* act, std::size_t rows,
               std::size_t width) {
  using V = Lanes<A>;
  for (std::size_t r = 0; r < rows; ++r, product += width, pre += width, act += width) {
    for_lanes(
        width, MUSTER_BODY {
          const V x = rounded<S>(load(product + i, n) + load(bias + i, n));
          store(pre + i, x, n);
          store(act + i, numerics::gelu<V, A>(x), n);
        });
  }
}

template <class S, class A>
void gelu_backward(const A* dact, const S* pre, S* dpre, std::size_t count) {
  using V = Lanes<A>;
  for_lanes(
      count, MUSTER_BODY {
        const V slope = numerics::gelu_slope<V, A>(load(pre + i, n));
        store(dpre + i, load(dact + i, n) * slope, n);
      });
}

template <class S, class A>
void column_sums(const S* x, A* sums, std::size_t rows, std::size_t width) {
  for (std::size_t start = 0; start < rows; start += numerics::kRowBlock) {
    const std::size_t end = smaller(rows, start + numerics::kRowBlock);
    for_lanes(
        width, MUSTER_BODY {
          Lanes<A> sum(A{0});
          for (std::size_t r = start; r < end; ++r)
            sum = sum + load(x + r * width + i, n);
          store(sums + i, load(sums + i, n) + sum, n);
        });
  }
}

void adamw(const numerics::AdamWCoefficients& coefficients, bool decay, const float* gradients,
           float* parameters, float* first, float* second, std::size_t count) {
  for_lanes(
      count, MUSTER_BODY {
        F32x16 p = load(parameters + i, n);
        F32x16 m = load(first + i, n);
        F32x16 v = load(second + i, n);
        numerics::adamw_element(coefficients, decay, load(gradients + i, n), p, m, v);
        store(parameters + i, p, n);
        store(first + i, m, n);
        store(second + i, v, n);
      });
}

bool all_finite(const float* values, std::size_t count) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t exponent = numerics::bits_of(values[i]) & 0x7f800000U;
    bad |= exponent == 0x7f800000U ? 1U : 0U;
  }
  return bad == 0;
}

double square_sum(const float* values, std::size_t count) {
  return numerics::square_sum(values, count);
}

}  // namespace
}  // namespace muster::runtime
