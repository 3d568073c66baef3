// SPDX-License-Identifier: Apache-2.0
//
// Every kernel by its name, as the host runs it.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "worker_runtime/cuda/kernels/exec.h"

namespace muster::runtime::cuda {

struct HostKernel {
  unsigned threads = 0;
  std::size_t shared = 0;
  std::size_t args_size = 0;
  void (*run)(Grid grid, const void* args) = nullptr;
};

const std::map<std::string, HostKernel>& host_kernels();

}  // namespace muster::runtime::cuda
