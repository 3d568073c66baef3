// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/kernels/buckets.h"
#include "worker_runtime/cuda/kernels/exec_device.cuh"
#include "worker_runtime/cuda/kernels/list.h"
#include "worker_runtime/cuda/kernels/optimizer.h"

namespace muster::runtime::cuda {
MUSTER_OPTIMIZER_KERNELS(MUSTER_KERNEL_ENTRY)
MUSTER_BUCKET_KERNELS(MUSTER_KERNEL_ENTRY)
}  // namespace muster::runtime::cuda
