// SPDX-License-Identifier: Apache-2.0
//
// From configuration and hardware to the engine of a run; see rank_device.h.
//
// Thread rule: one thread; blocks on peers.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "worker_runtime/cuda/engine/rank_device.h"
#include "worker_runtime/train/engine.h"

namespace muster::runtime::cuda {

struct DeviceSetup {
  bool on_device = false;
  EngineMaker make_engine = make_cpu_engine;
  std::string signature;           // on a device: what decides a step's bits, for BuildFacts
  std::vector<std::string> notes;  // for people
};

// Errors as open_rank_device. What it returns must not outlive the request's references.
absl::StatusOr<DeviceSetup> set_up_device(const DeviceLibraries& libraries,
                                          const DeviceRequest& request);

}  // namespace muster::runtime::cuda
