// SPDX-License-Identifier: Apache-2.0
//
// Runs a kernel on the host with its threads in three orders. What they write must not depend on
// it: on a device there is none.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include "worker_runtime/cuda/kernels/exec_host.h"

namespace muster::runtime::cuda {

template <class T>
std::span<std::byte> written(std::vector<T>& output) {
  return {reinterpret_cast<std::byte*>(output.data()), output.size() * sizeof(T)};
}

// `outputs`: everything that the kernel writes. It starts from what they hold and is left there.
template <class Kernel>
void run_in_all_orders(Grid grid, const typename Kernel::Args& args,
                       std::initializer_list<std::span<std::byte>> outputs) {
  std::vector<std::vector<std::byte>> before;
  for (const std::span<std::byte> output : outputs)
    before.emplace_back(output.begin(), output.end());
  std::vector<std::vector<std::byte>> first;
  for (const Order order : {Order::kForwards, Order::kBackwards, Order::kShuffled}) {
    std::size_t at = 0;
    for (const std::span<std::byte> output : outputs) {
      if (!output.empty()) std::memcpy(output.data(), before[at].data(), output.size());
      ++at;
    }
    run_on_host<Kernel>(grid, args, order);
    std::vector<std::vector<std::byte>> after;
    for (const std::span<std::byte> output : outputs)
      after.emplace_back(output.begin(), output.end());
    if (first.empty()) first = after;
    REQUIRE(after == first);
  }
}

}  // namespace muster::runtime::cuda
