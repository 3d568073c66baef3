// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cpu/kernels/table.h"

namespace muster::runtime {

const KernelSet& portable_kernels() {
  return kSet;
}

const Kernels<double>& double_kernels() {
  return kTable<double>;
}

}  // namespace muster::runtime
