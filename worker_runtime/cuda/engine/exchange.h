// SPDX-License-Identifier: Apache-2.0
//
// How a device's gradient becomes the sum over all ranks, bucket by bucket, beside the rest of the
// backward pass. The ways: NCCL between devices; staged, over pinned host memory and the group's
// own transport, which also serves several ranks on one device; none, for a rank alone.
//
// Errors: a peer's as in collectives.h, else the device's.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/cuda/communicator.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/engine/buckets.h"

namespace muster::runtime::cuda {

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // This rank's part of a bucket, sum[0, bucket.count), is complete once what is queued on
  // `compute` so far has run. All ranks start the same buckets in the same order.
  virtual absl::Status start(const Bucket& bucket, float* sum, Stream& compute) = 0;
  // Every bucket of the step was started: what is queued on `compute` later sees the sums.
  virtual absl::Status finish(Stream& compute) = 0;
  // Once the results were waited for, before they are believed.
  virtual absl::Status check() { return absl::OkStatus(); }

  // Of the operations so far, where the group does not compare them itself.
  virtual std::uint64_t fingerprint() const { return 0; }
  // Together with the other ranks, after the last step.
  virtual absl::Status close() { return absl::OkStatus(); }
};

// For a rank alone.
std::unique_ptr<GradientExchange> make_no_exchange();

// Elements that an exchange has to do with at once.
struct ExchangeRoom {
  std::size_t elements = 0;  // of all buckets together
  std::size_t largest = 0;   // of one bucket
};

// `wire`: what travels. The sums have the bits of all_reduce_sum (ops.h), but for what stands in a
// NaN. `group` must outlive it.
absl::StatusOr<std::unique_ptr<GradientExchange>> make_staged_exchange(
    std::shared_ptr<Device> device, Collectives& group, WireType wire, std::uint64_t layout_hash,
    const ExchangeRoom& room);

// On a 16-bit wire NCCL rounds as it likes.
absl::StatusOr<std::unique_ptr<GradientExchange>> make_nccl_exchange(
    std::shared_ptr<Device> device, std::unique_ptr<Communicator> communicator, WireType wire,
    const ExchangeRoom& room);

}  // namespace muster::runtime::cuda
