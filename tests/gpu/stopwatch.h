// SPDX-License-Identifier: Apache-2.0
//
// How long a device takes for something, by events around it, warmed up; the median of some tries.
//
// Thread rule: one thread, which has called Device::use().
#pragma once

#include <functional>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "tests/gpu/context.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/products.h"

namespace muster::runtime::cuda::gpu_check {

// What H200's data sheet says of dense 16-bit products.
inline constexpr double kNominalTeraflops = 989;

class Stopwatch {
 public:
  static absl::StatusOr<Stopwatch> make(Device& device);
  // Seconds that what `queue` queues takes once.
  absl::StatusOr<double> seconds(Stream& stream, const std::function<absl::Status()>& queue) const;

 private:
  absl::StatusOr<double> seconds_of(Stream& stream, const std::function<absl::Status()>& queue,
                                    int times) const;
  std::unique_ptr<Event> begin_, end_;
};

// Normal numbers, `count` of a 16-bit format. Products of zeroes would draw less power.
absl::StatusOr<Memory> random_matrix(Device& device, Stream& stream, Number number,
                                     std::size_t count);

// What this device reaches: bytes a second of a copy, reading and writing counted, and operations a
// second of a large product in 16 bits. On fakes of something small, and without meaning.
absl::StatusOr<double> measure_copy(const Context& context, const Opened& opened, Stream& stream);
absl::StatusOr<double> measure_product(const Context& context, const Opened& opened, Stream& stream,
                                       Number number);

}  // namespace muster::runtime::cuda::gpu_check
