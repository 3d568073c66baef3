// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/kernels/column_sums.h"
#include "worker_runtime/cuda/kernels/elementwise.h"
#include "worker_runtime/cuda/kernels/exec_device.cuh"
#include "worker_runtime/cuda/kernels/list.h"

namespace muster::runtime::cuda {
MUSTER_ELEMENTWISE_KERNELS(MUSTER_KERNEL_ENTRY)
}  // namespace muster::runtime::cuda
