// SPDX-License-Identifier: Apache-2.0
//
// The name of every kernel, by its type: what Stream::launch looks up in the image.
#pragma once

#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/kernels/all.h"

namespace muster::runtime::cuda {

#define MUSTER_KERNEL_NAME(name, ...)           \
  template <>                                   \
  struct KernelName<__VA_ARGS__> {              \
    static constexpr const char* kName = #name; \
  };
MUSTER_ALL_KERNELS(MUSTER_KERNEL_NAME)
#undef MUSTER_KERNEL_NAME

}  // namespace muster::runtime::cuda
