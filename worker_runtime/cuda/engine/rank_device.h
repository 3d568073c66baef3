// SPDX-License-Identifier: Apache-2.0
//
// From hardware and what was asked for to the device of a rank: what this process has is opened,
// all ranks say what they have, and all decide alike. Then the ways between the ranks' devices.
//
// Thread rule: one thread; blocks on peers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/communicator_core.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/engine/device_choice.h"
#include "worker_runtime/cuda/engine/exchange.h"
#include "worker_runtime/cuda/engine/libraries.h"
#include "worker_runtime/cuda/nccl_api.h"
#include "worker_runtime/cuda/nccl_meeting.h"

namespace muster::runtime::cuda {

struct DeviceRequest {
  DeviceWish wish;
  Collectives* group = nullptr;      // of all ranks
  int local_rank = 0;                // of this host's ranks: which of its devices
  GenerationStore* store = nullptr;  // for NCCL; none: one rank alone
  // Whether peers that do not come to a collective are to be given up; see communicator.h.
  std::function<bool()> stopping = {};
  // How a rank ends whose communicator failed; see communicator.h. Called from its threads.
  std::function<void(const RankEnd&)> failed = {};
  std::function<void(const RankEnd&)> end = {};
};

struct RankDevice {
  std::shared_ptr<Device> device;  // none: all ranks compute on the CPU; of the rest notes stand
  BlasApi blas;
  std::optional<NcclApi> nccl;
  CommunicatorLimits nccl_limits;
  DeviceReport report;  // this rank's
  DeviceBackend backend = DeviceBackend::kAlone;
  std::vector<std::string> notes;  // for people
};

// Nothing is opened where the CPU was asked for. Errors of the group keep their code; kInternal:
// no such device, or unlike ranks (exit 85).
absl::StatusOr<RankDevice> open_rank_device(const DeviceLibraries& libraries,
                                            const DeviceRequest& request);

// The way between devices that was chosen; see exchange.h.
// REQUIRES: there is a device. What the request points to must outlive what it returns.
absl::StatusOr<std::unique_ptr<GradientExchange>> make_exchange(const RankDevice& rank,
                                                                const DeviceRequest& request,
                                                                WireType wire,
                                                                std::uint64_t layout_hash,
                                                                const ExchangeRoom& room);

}  // namespace muster::runtime::cuda
