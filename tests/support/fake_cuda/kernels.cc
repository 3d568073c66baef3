// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/kernels.h"

#include <type_traits>

#include "worker_runtime/cuda/kernels/all.h"
#include "worker_runtime/cuda/kernels/exec_host.h"

namespace muster::runtime::cuda {
namespace {

template <class Kernel>
HostKernel host_kernel() {
  static_assert(std::is_trivially_copyable_v<typename Kernel::Args>);
  return {Kernel::kThreads, shared_bytes<Kernel>, sizeof(typename Kernel::Args),
          [](Grid grid, const void* args) {
            run_on_host<Kernel>(grid, *static_cast<const typename Kernel::Args*>(args));
          }};
}

}  // namespace

const std::map<std::string, HostKernel>& host_kernels() {
#define MUSTER_HOST_KERNEL(name, ...) {#name, host_kernel<__VA_ARGS__>()},
  static const std::map<std::string, HostKernel> kernels{MUSTER_ALL_KERNELS(MUSTER_HOST_KERNEL)};
#undef MUSTER_HOST_KERNEL
  return kernels;
}

}  // namespace muster::runtime::cuda
