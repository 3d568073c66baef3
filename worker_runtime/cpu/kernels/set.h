// SPDX-License-Identifier: Apache-2.0
//
// The tables that one instruction set's file exports.
#pragma once

#include "worker_runtime/cpu/kernels.h"

namespace muster::runtime {

struct KernelSet {
  const Kernels<float>* f32 = nullptr;
  const Kernels<Bf16>* bf16 = nullptr;
  const Kernels<F16>* f16 = nullptr;
  const FlatKernels* flat = nullptr;
};

const KernelSet& portable_kernels();
const KernelSet& avx2_kernels();
const KernelSet& avx512_kernels();
const Kernels<double>& double_kernels();  // the portable file's

}  // namespace muster::runtime
