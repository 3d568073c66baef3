// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt over the fake driver: products run on its streams, in FP32, by the CPU's own product
// kernel. It knows what products.cc calls and refuses everything else.
#pragma once

#include <cstddef>

#include "worker_runtime/cuda/blas_api.h"

namespace muster::runtime::cuda {

// `otherwise`: a library whose heuristic chooses other algorithms, which give the same bits here.
// REQUIRES: a FakeDriver exists whenever it is used.
BlasApi fake_blas(bool otherwise = false);
// Handles, descriptors and layouts that were not given back.
std::size_t fake_blas_alive();

}  // namespace muster::runtime::cuda
