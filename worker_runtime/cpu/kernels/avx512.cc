// SPDX-License-Identifier: Apache-2.0
// Compiled with AVX-512 F, BW, DQ and VL on; see worker_runtime/CMakeLists.txt.
#include "worker_runtime/cpu/kernels/table.h"

namespace muster::runtime {

const KernelSet& avx512_kernels() {
  return kSet;
}

}  // namespace muster::runtime
