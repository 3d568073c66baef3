// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "worker_runtime/train/engine.h"
#include "worker_runtime/train/gradients.h"

namespace muster::runtime {
namespace {

class CpuEngine final : public Engine {
 public:
  CpuEngine(const EngineRequest& request, std::unique_ptr<Gpt> model)
      : request_(request),
        model_(std::move(model)),
        gradients_(request.layout, request.parallel.deterministic, wire_type(request.parallel)) {}

  absl::Status load(TrainTensors tensors) override {
    tensors_ = std::move(tensors);
    model_->load_weights(tensors_.master);
    return absl::OkStatus();
  }

  absl::StatusOr<GradientFacts> gradient(LeafRange mine, std::uint64_t leaf_count,
                                         const Tokens& tokens, float gradient_scale,
                                         std::vector<double>& losses) override {
    gradients_.compute(mine, [&](std::uint64_t leaf, std::span<float> into) {
      losses.push_back(model_->forward_backward(tokens(leaf), request_.micro, request_.model.n_ctx,
                                                gradient_scale, into));
      if (request_.after_backward) request_.after_backward(into);
    });
    GradientFacts facts;
    facts.own_bad = gradients_.first_bad();
    const absl::Status reduced = gradients_.reduce(request_.group, leaf_count);
    if (!reduced.ok()) return reduced;
    const FlatLayout& layout = request_.layout;
    const BlockRange own = own_blocks(layout.size, request_.group.size(), request_.group.rank());
    const std::span<const float> part = gradients_.sum().subspan(own.offset, own.count);
    facts.sum_bad = first_non_finite(layout, own.offset, part);
    facts.norm_partials = square_norm_partials(own.offset, part);
    return facts;
  }

  absl::Status apply(const AdamWOptions& options, std::uint64_t update,
                     double gradient_factor) override {
    adamw_step(options, update, gradient_factor, request_.layout, 0, gradients_.sum(),
               tensors_.master, tensors_.m, tensors_.v);
    model_->load_weights(tensors_.master);
    return absl::OkStatus();
  }

  absl::StatusOr<double> forward(std::span<const std::int32_t> tokens,
                                 std::int64_t batch) override {
    return model_->forward(tokens, batch, request_.model.n_ctx);
  }

  absl::StatusOr<std::span<const float>> master() override {
    return std::span<const float>(tensors_.master);
  }
  absl::StatusOr<const TrainTensors*> tensors() override { return &tensors_; }

 private:
  EngineRequest request_;
  std::unique_ptr<Gpt> model_;
  GradientSum gradients_;
  TrainTensors tensors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> make_cpu_engine(const EngineRequest& request) {
  auto model = make_gpt(request.model, request.precision, request.micro);
  if (!model.ok()) return model.status();
  return std::make_unique<CpuEngine>(request, *std::move(model));
}

}  // namespace muster::runtime
