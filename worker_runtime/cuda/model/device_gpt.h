// SPDX-License-Identifier: Apache-2.0
//
// The decoder of model/gpt.h on a device, kernel by kernel on one stream. It rounds where the CPU's
// model rounds (model/gpt_model.h), except that what a product hands to GELU's backward pass is
// rounded to the storage format first; sums run in other orders. So losses and gradients agree with
// the CPU's within the format's tolerance, not bit for bit; the same run gives the same bits.
//
// Thread rule: one thread per object at a time, which has called Device::use().
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/model/gpt.h"

namespace muster::runtime::cuda {

class DeviceGpt {
 public:
  virtual ~DeviceGpt() = default;

  // Re-derives the working copy from FP32 masters on the host (layout.size). Queued.
  virtual absl::Status load_weights(std::span<const float> master) = 0;

  // One micro-batch: tokens (batch, time + 1) row-major. Leaves d(sum of token losses *
  // gradient_scale)/d(parameter) in gradients(), and returns the unscaled sum of token losses;
  // waits for both. time <= n_ctx.
  virtual absl::StatusOr<double> forward_backward(std::span<const std::int32_t> tokens,
                                                  std::int64_t batch, std::int64_t time,
                                                  float gradient_scale) = 0;
  // The sum of token losses alone.
  virtual absl::StatusOr<double> forward(std::span<const std::int32_t> tokens, std::int64_t batch,
                                         std::int64_t time) = 0;

  // layout.size FP32 in device memory, of the last micro-batch.
  virtual float* gradients() = 0;
  virtual Stream& stream() = 0;
  // The library that multiplies, its version and its choices.
  virtual std::string signature() const = 0;
};

// kInvalidArgument naming the field, as make_gpt(); kResourceExhausted where the device has no
// room, with how much was wanted.
absl::StatusOr<std::unique_ptr<DeviceGpt>> make_device_gpt(const GptConfig& config,
                                                           Precision precision,
                                                           std::int64_t max_batch,
                                                           std::shared_ptr<Device> device,
                                                           const BlasApi& blas);

}  // namespace muster::runtime::cuda
