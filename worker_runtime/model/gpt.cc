// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/model/gpt.h"

#include <new>
#include <string>
#include <utility>

#include <absl/status/status.h>

#include "worker_runtime/model/gpt_model.h"

namespace muster::runtime {
namespace {

class DnnlProducts {
 public:
  using A = float;
  void run(const ProductShape& shape, const float* a, const float* b, float* c) {
    matmul_.run(shape, a, b, c);
  }

 private:
  Matmul matmul_;
};

template <class S>
class CpuGpt final : public Gpt {
 public:
  CpuGpt(const GptConfig& config, std::int64_t max_batch)
      : model_(config, max_batch, best_isa(), DnnlProducts()) {}

  void load_weights(std::span<const float> master) override {
    const ComputeScope scope;
    model_.load_weights(master);
  }

  double forward_backward(std::span<const std::int32_t> tokens, std::int64_t batch,
                          std::int64_t time, float gradient_scale,
                          std::span<float> gradients) override {
    MUSTER_CHECK(gradients.size() == model_.layout().size);
    const ComputeScope scope;
    return model_.run(tokens, batch, time, gradient_scale, gradients.data());
  }

  double forward(std::span<const std::int32_t> tokens, std::int64_t batch,
                 std::int64_t time) override {
    const ComputeScope scope;
    return model_.run(tokens, batch, time, 1.0F, nullptr);
  }

 private:
  GptModel<S, DnnlProducts> model_;
};

template <class S>
absl::StatusOr<std::unique_ptr<Gpt>> make(const GptConfig& config, std::int64_t max_batch) {
  try {
    return std::make_unique<CpuGpt<S>>(config, max_batch);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("not enough memory for the model and a micro-batch of " +
                                        std::to_string(max_batch));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Gpt>> make_gpt(const GptConfig& config, Precision precision,
                                              std::int64_t max_batch) {
  if (absl::Status status = check_gpt(config, max_batch); !status.ok()) return status;
  const ComputeScope scope;
  switch (precision) {
    case Precision::kBf16: return make<Bf16>(config, max_batch);
    case Precision::kF16: return make<F16>(config, max_batch);
    case Precision::kF32: break;
  }
  return make<float>(config, max_batch);
}

std::string gpt_signature() {
  return matmul_signature() + ", kernels " + isa_name(best_isa());
}

}  // namespace muster::runtime
