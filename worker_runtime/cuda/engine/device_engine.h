// SPDX-License-Identifier: Apache-2.0
//
// The engine (train/engine.h) of a rank that has a device: masters, moments, gradient and model
// stay there; the host sees losses, norms and what a checkpoint wants.
//
// With parallel.deterministic the micro-batches' gradients are added on the host, by the tree that
// does not depend on the world size; nothing overlaps then.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/engine/exchange.h"
#include "worker_runtime/train/engine.h"

namespace muster::runtime::cuda {

// Makes the exchange once the buckets are known.
using ExchangeMaker =
    std::function<absl::StatusOr<std::unique_ptr<GradientExchange>>(const ExchangeRoom& room)>;

// kInvalidArgument: the configuration's fault; kResourceExhausted: no room on the device. Others
// are the device's, or the exchange's. `exchange` is not asked with parallel.deterministic.
absl::StatusOr<std::unique_ptr<Engine>> make_device_engine(const EngineRequest& request,
                                                           std::shared_ptr<Device> device,
                                                           const BlasApi& blas,
                                                           const ExchangeMaker& exchange);

}  // namespace muster::runtime::cuda
