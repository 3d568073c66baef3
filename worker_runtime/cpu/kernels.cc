// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cpu/kernels.h"

#include "proto/base/check.h"
#include "worker_runtime/cpu/kernels/set.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime {
namespace {

const KernelSet& kernel_set(Isa isa) {
  MUSTER_CHECK(isa_supported(isa));
  switch (isa) {
    case Isa::kAvx512: return avx512_kernels();
    case Isa::kAvx2: return avx2_kernels();
    case Isa::kPortable: break;
  }
  return portable_kernels();
}

}  // namespace

template <>
const Kernels<float>& kernels<float>(Isa isa) {
  return *kernel_set(isa).f32;
}

template <>
const Kernels<Bf16>& kernels<Bf16>(Isa isa) {
  return *kernel_set(isa).bf16;
}

template <>
const Kernels<F16>& kernels<F16>(Isa isa) {
  return *kernel_set(isa).f16;
}

template <>
const Kernels<double>& kernels<double>(Isa isa) {
  MUSTER_CHECK(isa == Isa::kPortable);
  return double_kernels();
}

const FlatKernels& flat_kernels(Isa isa) {
  return *kernel_set(isa).flat;
}

std::size_t attention_scratch(const AttentionShape& shape) {
  const auto up = [](std::size_t n) { return (n + 15) / 16 * 16; };
  const std::size_t columns = up(shape.time);
  const std::size_t padded = up(shape.head_size);
  // The backward pass needs most: five [time][padded], two [head_size][columns], the block's
  // three [block][columns] and one [block][padded].
  return 5 * shape.time * padded + 2 * shape.head_size * columns + 3 * kQueryBlock * columns +
         kQueryBlock * padded;
}

}  // namespace muster::runtime
