// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/engine/device_setup.h"

#include <memory>
#include <utility>

#include "worker_runtime/cuda/engine/device_engine.h"

namespace muster::runtime::cuda {

absl::StatusOr<DeviceSetup> set_up_device(const DeviceLibraries& libraries,
                                          const DeviceRequest& request) {
  auto opened = open_rank_device(libraries, request);
  if (!opened.ok()) return opened.status();
  const auto rank = std::make_shared<const RankDevice>(*std::move(opened));
  DeviceSetup setup;
  setup.notes = rank->notes;
  if (rank->device == nullptr) return setup;
  setup.on_device = true;
  setup.signature = rank->report.facts.device + ", " + rank->report.libraries;
  setup.make_engine = [rank, request](const EngineRequest& engine) {
    // The training loop's own group, which is watched over.
    DeviceRequest with = request;
    with.group = &engine.group;
    return make_device_engine(engine, rank->device, rank->blas, [&](const ExchangeRoom& room) {
      return make_exchange(*rank, with, wire_type(engine.parallel), engine.layout.hash, room);
    });
  };
  return setup;
}

}  // namespace muster::runtime::cuda
