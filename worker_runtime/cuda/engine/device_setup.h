// SPDX-License-Identifier: Apache-2.0
//
// From configuration and hardware to the engine of a run: what this process has is opened, all
// ranks say what they have, and all decide alike.
//
// Thread rule: one thread; blocks on peers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/cuda/communicator_core.h"
#include "worker_runtime/cuda/engine/libraries.h"
#include "worker_runtime/cuda/nccl_meeting.h"
#include "worker_runtime/train/config.h"
#include "worker_runtime/train/engine.h"

namespace muster::runtime::cuda {

struct SetupRequest {
  const TrainConfig& config;
  Collectives& group;
  int local_rank = 0;                // of this host's ranks: which of its devices
  GenerationStore* store = nullptr;  // for NCCL; none: one rank alone
  // How a rank ends whose communicator failed; see communicator.h. Called from its threads.
  std::function<void(const RankEnd&)> failed = {};
  std::function<void(const RankEnd&)> end = {};
};

struct DeviceSetup {
  bool on_device = false;
  EngineMaker make_engine = make_cpu_engine;
  std::string signature;           // on a device: what decides a step's bits, for BuildFacts
  std::vector<std::string> notes;  // for people
};

// Nothing is opened where the configuration says cpu. Errors of the group keep their code;
// kInternal: no such device, or unlike ranks (exit 85). What it returns must not outlive the
// request's references.
absl::StatusOr<DeviceSetup> set_up_device(const DeviceLibraries& libraries,
                                          const SetupRequest& request);

}  // namespace muster::runtime::cuda
