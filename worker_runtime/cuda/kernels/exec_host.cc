// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/kernels/exec_host.h"

#include <numeric>

namespace muster::runtime::cuda {

std::uint64_t in_order(Order order, std::uint64_t step, std::uint64_t count) {
  if (order == Order::kForwards) return step;
  if (order == Order::kBackwards) return count - 1 - step;
  // A stride that shares no factor with the count takes each of them once.
  std::uint64_t stride = count * 5 / 8 + 1;
  while (std::gcd(stride, count) != 1)
    ++stride;
  return (step * stride + count / 3) % count;
}

}  // namespace muster::runtime::cuda
