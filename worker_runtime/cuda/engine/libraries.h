// SPDX-License-Identifier: Apache-2.0
//
// Where a process gets the device libraries from: those installed here, or a test's fakes.
#pragma once

#include <functional>
#include <vector>

#include <absl/status/statusor.h>

#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/communicator_core.h"
#include "worker_runtime/cuda/driver_api.h"
#include "worker_runtime/cuda/images.h"
#include "worker_runtime/cuda/nccl_api.h"

namespace muster::runtime::cuda {

struct DeviceLibraries {
  std::function<absl::StatusOr<DriverApi>()> driver = load_driver;
  std::function<absl::StatusOr<BlasApi>()> blas = load_blas;
  std::function<absl::StatusOr<NcclApi>()> nccl = load_nccl;
  std::function<const std::vector<DeviceImage>&()> images = device_images;
  // Longer than a rank that failed first listens to the others.
  CommunicatorLimits nccl_limits = {.yield = 700ms};
};

}  // namespace muster::runtime::cuda
