// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "proto/base/check.h"
#include "tests/gpu/trial.h"
#include "tests/support/fake_cuda/kernels.h"

namespace muster::runtime::cuda::gpu_check {

void run_host_kernel(const std::string& name, Grid grid, const void* args, std::size_t args_size) {
  const HostKernel& kernel = host_kernels().at(name);
  MUSTER_CHECK(kernel.args_size == args_size);
  kernel.run(grid, args);
}

std::vector<KernelCase> all_cases() {
  std::vector<KernelCase> all;
  for (auto* family :
       {attention_cases, elementwise_cases, norm_and_loss_cases, table_and_update_cases}) {
    for (KernelCase& one : family())
      all.push_back(std::move(one));
  }
  for (const auto& [name, kernel] : host_kernels()) {
    const auto count = std::count_if(all.begin(), all.end(), [&name = name](const KernelCase& one) {
      return one.kernel == name;
    });
    MUSTER_CHECK(count == 1);
  }
  MUSTER_CHECK(all.size() == host_kernels().size());
  return all;
}

}  // namespace muster::runtime::cuda::gpu_check
