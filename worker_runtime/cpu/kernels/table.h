// SPDX-License-Identifier: Apache-2.0
//
// Everything of one instruction set: the kernels of kernels.h and the tables that point at them.
// Included once in each of portable.cc, avx2.cc, avx512.cc, which differ in their compiler flags.
#pragma once

#include "worker_runtime/cpu/kernels/attention.h"
#include "worker_runtime/cpu/kernels/elementwise.h"
#include "worker_runtime/cpu/kernels/norm_loss.h"
#include "worker_runtime/cpu/kernels/product.h"
#include "worker_runtime/cpu/kernels/set.h"

namespace muster::runtime {
namespace {

template <class S, class A = Accumulator<S>>
constexpr Kernels<S> kTable = {
    .widen = widen<S, A>,
    .narrow = narrow<S, A>,
    .add = add<A>,
    .embed = embed<S, A>,
    .embed_backward = embed_backward<S, A>,
    .layernorm = layernorm<S, A>,
    .layernorm_backward = layernorm_backward<S, A>,
    .bias = bias<S, A>,
    .bias_residual = bias_residual<S, A>,
    .bias_gelu = bias_gelu<S, A>,
    .gelu_backward = gelu_backward<S, A>,
    .column_sums = column_sums<S, A>,
    .attention = attention<S, A>,
    .attention_backward = attention_backward<S, A>,
    .cross_entropy = cross_entropy<S, A>,
    .product = product<A>,
};

constexpr FlatKernels kFlat = {.adamw = adamw, .all_finite = all_finite, .square_sum = square_sum};

constexpr KernelSet kSet = {&kTable<float>, &kTable<Bf16>, &kTable<F16>, &kFlat};

}  // namespace
}  // namespace muster::runtime
