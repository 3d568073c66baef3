// SPDX-License-Identifier: Apache-2.0
// Compiled with AVX2, FMA and F16C on; see worker_runtime/CMakeLists.txt.
#include "worker_runtime/cpu/kernels/table.h"

namespace muster::runtime {

const KernelSet& avx2_kernels() {
  return kSet;
}

}  // namespace muster::runtime
