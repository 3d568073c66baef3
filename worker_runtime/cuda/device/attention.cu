// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/kernels/attention.h"
#include "worker_runtime/cuda/kernels/attention_backward.h"
#include "worker_runtime/cuda/kernels/attention_plain.h"
#include "worker_runtime/cuda/kernels/exec_device.cuh"
#include "worker_runtime/cuda/kernels/list.h"

namespace muster::runtime::cuda {
MUSTER_ATTENTION_KERNELS(MUSTER_KERNEL_ENTRY)
}  // namespace muster::runtime::cuda
