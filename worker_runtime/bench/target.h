// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark adds on, and by which way: host memory and the group's own all-reduce, or a
// device and the exchange that its gradients take. Both as training uses them.
//
// Errors: a peer's as in collectives.h, else the device's.
// Thread rule: one thread; all ranks call the same in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/bench/pattern.h"
#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/engine/exchange.h"

namespace muster::runtime {

class SumTarget {
 public:
  virtual ~SumTarget() = default;
  // The first `count` numbers become this rank's of `round`; done when it returns.
  virtual absl::Status fill(std::size_t count, std::uint64_t round) = 0;
  // They become the sums over all ranks; done when it returns.
  virtual absl::Status sum(std::size_t count) = 0;
  // How many are not the right sums.
  virtual absl::StatusOr<std::uint64_t> wrong(std::size_t count, std::uint64_t round) = 0;
  // Together with the other ranks, at the end.
  virtual absl::Status close() { return absl::OkStatus(); }
};

// `elements`: the largest count. `group` and `pattern` must outlive it.
std::unique_ptr<SumTarget> make_host_target(Collectives& group, WireType wire,
                                            const Pattern& pattern, std::size_t elements);
absl::StatusOr<std::unique_ptr<SumTarget>> make_device_target(
    std::shared_ptr<cuda::Device> device, std::unique_ptr<cuda::GradientExchange> exchange,
    const Pattern& pattern, std::size_t elements);

}  // namespace muster::runtime
