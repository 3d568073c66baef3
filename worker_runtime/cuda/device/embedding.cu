// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/kernels/embedding.h"
#include "worker_runtime/cuda/kernels/exec_device.cuh"
#include "worker_runtime/cuda/kernels/list.h"

namespace muster::runtime::cuda {
MUSTER_EMBEDDING_KERNELS(MUSTER_KERNEL_ENTRY)
}  // namespace muster::runtime::cuda
