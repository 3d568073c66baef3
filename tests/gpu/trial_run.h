// SPDX-License-Identifier: Apache-2.0
//
// A trial's buffers on a device and on the host.
//
// Thread rule: one thread, which has called Device::use().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "tests/gpu/trial.h"
#include "worker_runtime/cuda/device.h"

namespace muster::runtime::cuda::gpu_check {

class DeviceTrial {
 public:
  // Allocates the buffers and fills them.
  static absl::StatusOr<DeviceTrial> prepare(const Trial& trial, Device& device, Stream& stream);
  absl::Status launch(Stream& stream) const { return trial_->launch(stream, places()); }
  // What the buffers hold, once all that is queued has run.
  absl::StatusOr<std::vector<HostBytes>> fetch(Stream& stream) const;

 private:
  explicit DeviceTrial(const Trial& trial) : trial_(&trial) {}
  Places places() const;
  const Trial* trial_;
  std::vector<Memory> memory_;
};

// What the buffers hold after the host has run the kernel.
std::vector<HostBytes> run_trial_on_host(const Trial& trial);

// "" where a device's buffers are as close to the host's as they have to be, else the first
// difference.
std::string difference(const Trial& trial, const std::vector<HostBytes>& device,
                       const std::vector<HostBytes>& host);

}  // namespace muster::runtime::cuda::gpu_check
