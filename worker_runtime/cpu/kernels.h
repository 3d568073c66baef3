// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the model that are not products of large matrices, as one table a storage format
// and instruction set. S is how activations and their gradients are stored; A, in which we
// compute and keep weights, sums and statistics, is FP32 (FP64 for the gradient checks). A result
// is rounded to S once, when it is stored.
//
// Shapes are written as [rows][width], row-major and dense. Outputs never overlap inputs unless a
// line says so. Accumulating outputs are marked "adds". No kernel allocates; scratch is given.
//
// Thread rule: pure functions over their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_runtime/cpu/isa.h"
#include "worker_runtime/numerics/adamw.h"
#include "worker_runtime/numerics/half.h"

namespace muster::runtime {

template <class S>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};
template <class S>
using Accumulator = typename AccumulatorOf<S>::Type;

// One sequence of self-attention: qkv is [time][3 * heads * head_size], queries first.
struct AttentionShape {
  std::size_t time = 0;
  std::size_t heads = 0;
  std::size_t head_size = 0;
};
// Query rows that attention works on at a time.
inline constexpr std::size_t kQueryBlock = 32;
// Elements of A that the attention kernels need as scratch.
std::size_t attention_scratch(const AttentionShape& shape);

template <class S>
struct Kernels {
  using A = Accumulator<S>;

  void (*widen)(const S* in, A* out, std::size_t count);
  void (*narrow)(const A* in, S* out, std::size_t count);
  void (*add)(const A* in, A* out, std::size_t count);  // adds

  // x = wte[token] + wpe[position], for `batch` sequences of `time` tokens; token_stride apart.
  void (*embed)(const std::int32_t* tokens, std::size_t token_stride, const A* wte, const A* wpe,
                S* x, std::size_t batch, std::size_t time, std::size_t width);
  void (*embed_backward)(const std::int32_t* tokens, std::size_t token_stride, const S* dx, A* dwte,
                         A* dwpe, std::size_t batch, std::size_t time,
                         std::size_t width);  // adds

  // y = (x - mean) * rstd * weight + bias; mean and rstd [rows] are kept for the backward pass.
  void (*layernorm)(const S* x, const A* weight, const A* bias, S* y, A* mean, A* rstd,
                    std::size_t rows, std::size_t width);
  // `dy` comes from a product and is rounded to S here. dx (in place) += the gradient, or = it
  // when `replace`. dweight, dbias: adds. scratch: 2 * width.
  void (*layernorm_backward)(const S* x, const A* weight, const A* mean, const A* rstd, const A* dy,
                             bool replace, S* dx, A* dweight, A* dbias, A* scratch,
                             std::size_t rows, std::size_t width);

  // Epilogues of a product: out = product + bias (+ residual); pre likewise and act = gelu(pre).
  void (*bias)(const A* product, const A* bias, S* out, std::size_t rows, std::size_t width);
  void (*bias_residual)(const A* product, const A* bias, const S* residual, S* out,
                        std::size_t rows, std::size_t width);
  void (*bias_gelu)(const A* product, const A* bias, S* pre, S* act, std::size_t rows,
                    std::size_t width);
  void (*gelu_backward)(const A* dact, const S* pre, S* dpre, std::size_t count);
  void (*column_sums)(const S* x, A* sums, std::size_t rows, std::size_t width);  // adds

  // stats [heads][time][2]: maximum and reciprocal sum of each softmax row, for the backward pass.
  void (*attention)(const AttentionShape& shape, const S* qkv, S* out, A* stats, A* scratch);
  // `dout` [time][heads * head_size] comes from a product and is rounded to S here.
  void (*attention_backward)(const AttentionShape& shape, const S* qkv, const A* stats,
                             const A* dout, S* dqkv, A* scratch);

  // Returns the sum of the rows' losses, in row order. target(row) =
  // targets[row / time * target_stride + row % time]. dlogits = (softmax - one hot) * scale, or
  // nullptr. logits are overwritten.
  double (*cross_entropy)(A* logits, const std::int32_t* targets, std::size_t target_stride,
                          std::size_t time, std::size_t first_row, std::size_t rows,
                          std::size_t vocabulary, A scale, S* dlogits);

  // c [m][n] (+)= op(a) op(b): our own product, for FP64 and as a reference. lda, ldb: row
  // strides of a and b as stored. scratch: k * round_up(n, 16) + 4 * round_up(n, 16).
  void (*product)(bool transpose_a, bool transpose_b, bool add, std::size_t m, std::size_t n,
                  std::size_t k, const A* a, std::size_t lda, const A* b, std::size_t ldb, A* c,
                  A* scratch);
};

// REQUIRES: isa_supported(isa); for double: Isa::kPortable.
template <class S>
const Kernels<S>& kernels(Isa isa);
template <>
const Kernels<float>& kernels<float>(Isa isa);
template <>
const Kernels<Bf16>& kernels<Bf16>(Isa isa);
template <>
const Kernels<F16>& kernels<F16>(Isa isa);
template <>
const Kernels<double>& kernels<double>(Isa isa);

// Kernels over flat FP32 arrays, for the optimizer.
struct FlatKernels {
  void (*adamw)(const numerics::AdamWCoefficients& coefficients, bool decay, const float* gradients,
                float* parameters, float* first, float* second, std::size_t count);
  bool (*all_finite)(const float* values, std::size_t count);
  double (*square_sum)(const float* values, std::size_t count);  // one block of numerics/reduce.h
};
const FlatKernels& flat_kernels(Isa isa);

}  // namespace muster::runtime
