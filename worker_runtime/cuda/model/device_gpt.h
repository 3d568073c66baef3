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
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/cuda/blas_api.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/kernels/optimizer.h"
#include "worker_runtime/model/gpt.h"

namespace muster::runtime::cuda {

// The largest head (n_embd / n_head) that the kernels take.
inline constexpr std::int64_t kLargestHead = 256;
// Heads of all sequences of a micro-batch: a grid's second dimension.
inline constexpr std::int64_t kMostHeads = 65535;

// The state of training in device memory, layout.size FP32 each.
struct DeviceState {
  float* master = nullptr;
  float* first = nullptr;  // moments
  float* second = nullptr;
};

class DeviceGpt {
 public:
  virtual ~DeviceGpt() = default;

  // Re-derives the working copy from FP32 masters (layout.size) on the host, or on the device.
  // Queued.
  virtual absl::Status load_weights(std::span<const float> master) = 0;
  virtual absl::Status load_device_weights(const float* master) = 0;
  // One AdamW update of everything, the working copy included. `update` and `gradients`
  // (layout.size) are in device memory. Queued.
  virtual absl::Status adamw(const UpdateState* update, const float* gradients,
                             const DeviceState& state) = 0;

  // Called while a micro-batch is queued: its gradients below flat offset `end` are complete once
  // what is queued so far has run. `end` rises up to layout.size. An error ends the micro-batch.
  using Ready = std::function<absl::Status(std::size_t end)>;

  // From now on, compute of full micro-batches is replayed from graphs, captured here, one for each
  // part after which gradients below one of `stops` (rising) are complete: then alone is Ready
  // called. An error leaves everything as it was.
  virtual absl::Status use_graphs(std::span<const std::size_t> stops) = 0;

  // One micro-batch: tokens (batch, time + 1) row-major. Leaves d(sum of token losses *
  // gradient_scale)/d(parameter) in gradients() and the unscaled sum of token losses in *loss
  // (device memory). time <= n_ctx. Queued; the tokens are read before it returns,
  // and it waits for nothing that belongs to the micro-batch before.
  virtual absl::Status queue_backward(std::span<const std::int32_t> tokens, std::int64_t batch,
                                      std::int64_t time, float gradient_scale, double* loss,
                                      const Ready& ready) = 0;
  // The same and the loss, when all of it has run.
  absl::StatusOr<double> forward_backward(std::span<const std::int32_t> tokens, std::int64_t batch,
                                          std::int64_t time, float gradient_scale);
  // The sum of token losses alone.
  virtual absl::StatusOr<double> forward(std::span<const std::int32_t> tokens, std::int64_t batch,
                                         std::int64_t time) = 0;

  // layout.size FP32 in device memory, of the last micro-batch.
  virtual float* gradients() = 0;
  virtual Stream& stream() = 0;
  // The library that multiplies, its version, and a digest of its choices so far: at first those
  // for full micro-batches.
  virtual std::string signature() const = 0;

 protected:
  virtual double* own_loss() = 0;  // device memory
};

// kInvalidArgument naming the field, as make_gpt(); kResourceExhausted where the device has no
// room, with how much was wanted.
absl::StatusOr<std::unique_ptr<DeviceGpt>> make_device_gpt(const GptConfig& config,
                                                           Precision precision,
                                                           std::int64_t max_batch,
                                                           std::shared_ptr<Device> device,
                                                           const BlasApi& blas);

}  // namespace muster::runtime::cuda
