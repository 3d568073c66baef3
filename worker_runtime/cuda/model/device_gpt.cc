// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/model/device_gpt.h"

#include <string>
#include <utility>

#include "worker_runtime/cuda/kernels/attention_plain.h"
#include "worker_runtime/cuda/model/device_gpt_model.h"

namespace muster::runtime::cuda {
namespace {

template <class S>
absl::StatusOr<std::unique_ptr<DeviceGpt>> make(const GptConfig& config, std::int64_t max_batch,
                                                const std::shared_ptr<Device>& device,
                                                const BlasApi& blas) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device->make_stream();
  if (!stream.ok()) return stream.status();
  auto products = DeviceProducts::create(blas, device);
  if (!products.ok()) return products.status();
  auto model = std::make_unique<DeviceGptModel<S>>(config, max_batch, std::move(*stream),
                                                   std::move(*products));
  absl::Status room = model->allocate(*device);
  if (!room.ok()) {
    return absl::Status(room.code(), std::string("the model and a micro-batch of ") +
                                         std::to_string(max_batch) + ": " +
                                         std::string(room.message()));
  }
  if (absl::Status planned = model->plan(); !planned.ok()) return planned;
  return model;
}

}  // namespace

absl::StatusOr<double> DeviceGpt::forward_backward(std::span<const std::int32_t> tokens,
                                                   std::int64_t batch, std::int64_t time,
                                                   float gradient_scale) {
  absl::Status status = queue_backward(tokens, batch, time, gradient_scale, own_loss(), {});
  double loss = 0;
  if (status.ok()) status = stream().copy_to_host(&loss, own_loss(), sizeof(loss));
  if (status.ok()) status = stream().synchronize();
  if (!status.ok()) return status;
  return loss;
}

absl::StatusOr<std::unique_ptr<DeviceGpt>> make_device_gpt(const GptConfig& config,
                                                           Precision precision,
                                                           std::int64_t max_batch,
                                                           std::shared_ptr<Device> device,
                                                           const BlasApi& blas) {
  static_assert(kLargestHead == kPlainHead);
  if (absl::Status valid = check_gpt(config, max_batch); !valid.ok()) return valid;
  if (config.n_embd / config.n_head > kLargestHead) {
    return absl::InvalidArgumentError("heads of more than " + std::to_string(kLargestHead) +
                                      " elements cannot be computed on a CUDA device");
  }
  if (max_batch * config.n_head > kMostHeads) {
    return absl::InvalidArgumentError(
        "train_micro_batch_size_per_gpu * model.n_head is " + std::to_string(max_batch) + " * " +
        std::to_string(config.n_head) + ", and a CUDA device takes " + std::to_string(kMostHeads) +
        " heads at a time: choose a smaller micro-batch");
  }
  if (absl::Status used = device->use(); !used.ok()) return used;
  switch (precision) {
    case Precision::kBf16: return make<Bf16>(config, max_batch, device, blas);
    case Precision::kF16: return make<F16>(config, max_batch, device, blas);
    case Precision::kF32: break;
  }
  return make<float>(config, max_batch, device, blas);
}

}  // namespace muster::runtime::cuda
