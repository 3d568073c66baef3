// SPDX-License-Identifier: Apache-2.0
//
// All kernels, and one list of them.
#pragma once

#include "worker_runtime/cuda/kernels/attention.h"
#include "worker_runtime/cuda/kernels/attention_backward.h"
#include "worker_runtime/cuda/kernels/attention_plain.h"
#include "worker_runtime/cuda/kernels/column_sums.h"
#include "worker_runtime/cuda/kernels/elementwise.h"
#include "worker_runtime/cuda/kernels/list.h"

// clang-format off
#define MUSTER_ALL_KERNELS(KERNEL)   \
  MUSTER_ATTENTION_KERNELS(KERNEL)   \
  MUSTER_ELEMENTWISE_KERNELS(KERNEL)
// clang-format on
