// SPDX-License-Identifier: Apache-2.0
//
// All kernels, and one list of them.
#pragma once

#include "worker_runtime/cuda/kernels/attention.h"
#include "worker_runtime/cuda/kernels/attention_backward.h"
#include "worker_runtime/cuda/kernels/attention_plain.h"
#include "worker_runtime/cuda/kernels/buckets.h"
#include "worker_runtime/cuda/kernels/column_sums.h"
#include "worker_runtime/cuda/kernels/elementwise.h"
#include "worker_runtime/cuda/kernels/embedding.h"
#include "worker_runtime/cuda/kernels/list.h"
#include "worker_runtime/cuda/kernels/loss.h"
#include "worker_runtime/cuda/kernels/norm.h"
#include "worker_runtime/cuda/kernels/optimizer.h"

// clang-format off
#define MUSTER_ALL_KERNELS(KERNEL)   \
  MUSTER_ATTENTION_KERNELS(KERNEL)   \
  MUSTER_BUCKET_KERNELS(KERNEL)      \
  MUSTER_ELEMENTWISE_KERNELS(KERNEL) \
  MUSTER_EMBEDDING_KERNELS(KERNEL)   \
  MUSTER_LOSS_KERNELS(KERNEL)        \
  MUSTER_NORM_KERNELS(KERNEL)        \
  MUSTER_OPTIMIZER_KERNELS(KERNEL)
// clang-format on
