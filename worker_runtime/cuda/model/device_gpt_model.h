// SPDX-License-Identifier: Apache-2.0
//
// The device model written once for every storage format S; see device_gpt.h for what it promises.
// The steps are those of model/gpt_model.h, in the same order and with the same names.
//
// A gradient of a parameter is completed in its place of the flat gradient, which starts as zero:
// a micro-batch's leaf.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "worker_runtime/cuda/kernels/names.h"
#include "worker_runtime/cuda/kernels/token_order.h"
#include "worker_runtime/cuda/model/arena.h"
#include "worker_runtime/cuda/model/device_gpt.h"
#include "worker_runtime/cuda/model/queue.h"
#include "worker_runtime/cuda/model/token_sender.h"

namespace muster::runtime::cuda {

template <class S>
inline constexpr Number number_of = std::is_same_v<S, Bf16>  ? Number::kBf16
                                    : std::is_same_v<S, F16> ? Number::kF16
                                                             : Number::kF32;

template <class S>
class DeviceGptModel final : public DeviceGpt {
 public:
  DeviceGptModel(const GptConfig& config, std::int64_t max_batch, std::unique_ptr<Stream> stream,
                 std::unique_ptr<DeviceProducts> products);

  // Everything it will ever need.
  absl::Status allocate(Device& device);
  // Chooses the products' algorithms of full micro-batches. REQUIRES: allocated.
  absl::Status plan();

  absl::Status load_weights(std::span<const float> master) override;
  absl::Status load_device_weights(const float* master) override;
  absl::Status adamw(const UpdateState* update, const float* gradients,
                     const DeviceState& state) override;
  absl::Status use_graphs(std::span<const std::size_t> stops) override;
  absl::Status queue_backward(std::span<const std::int32_t> tokens, std::int64_t batch,
                              std::int64_t time, float gradient_scale, double* loss,
                              const Ready& ready) override;
  absl::StatusOr<double> forward(std::span<const std::int32_t> tokens, std::int64_t batch,
                                 std::int64_t time) override;
  float* gradients() override { return gradients_.data(); }
  Stream& stream() override { return *stream_; }
  std::string signature() const override { return products_->signature(); }

 protected:
  double* own_loss() override { return loss_.data(); }

 private:
  template <class T>
  using Array = Arena::Array<T>;
  struct Norm {
    std::size_t weight, bias;  // offsets in the flat layout
    Array<float> mean, rstd;
    Array<S> out;
  };
  struct Linear {
    std::size_t weight, bias;
    std::size_t in, out;
  };
  struct Layer {
    Array<S> x, qkv, attended, middle, pre, act;
    Array<float> lse;
    Norm norm1, norm2;
    Linear attn, attn_out, fc, fc_out;
  };

  std::size_t offset_of(const std::string& name) const;
  Norm make_norm(const std::string& name);
  Linear make_linear(const std::string& name, std::size_t in, std::size_t out) const;
  Layer make_layer(std::int64_t index);
  void reserve();

  const S* weight(std::size_t offset) const { return weights_.data() + offset; }
  float* gradient(std::size_t offset) const { return gradients_.data() + offset; }
  AttentionSize attention_size() const;

  void set_size(std::int64_t batch, std::int64_t time);
  void set_full_size();
  void begin(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t time,
             const float* scale);
  void run_forward();
  void run_backward(const Ready& ready);
  void replay(const Ready& ready);
  void cut(std::size_t end);
  void tell(const Ready& ready, std::size_t end);
  void send_tokens(std::span<const std::int32_t> tokens, const float* scale);
  void norm_forward(const Norm& norm, const S* x);
  void norm_backward(const Norm& norm, const S* x, bool replace);
  // d = x * weight + bias (+ residual).
  void linear_forward(const Linear& linear, const S* x, const S* residual, S* d);
  // dx = dy * weight', and the parameters' gradients.
  void linear_backward(const Linear& linear, const S* x, const S* dy, S* dx);
  void add_column_sums(const S* x, std::size_t width, float* sums);
  void attention_forward(const Layer& layer);
  void attention_backward(const Layer& layer);
  void layer_forward(const Layer& layer, S* next);
  void layer_backward(const Layer& layer);
  void head(bool backward);
  void embedding_backward();

  GptConfig config_;
  FlatLayout layout_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceProducts> products_;
  Queue queue_;
  std::size_t width_, heads_, vocabulary_, max_rows_, head_rows_, logits_stride_;
  std::size_t wte_, wpe_;

  TokenSender sender_;
  Arena arena_;
  Array<S> weights_;
  Array<float> gradients_;
  std::vector<Layer> layers_;
  Array<S> last_;  // residual stream after the last layer
  Norm last_norm_;
  Array<std::int32_t> tokens_, distinct_;
  Array<std::uint32_t> starts_, places_;
  Array<float> logits_, losses_, partials_, dots_;
  Array<double> loss_;
  Array<float> scale_;
  Array<S> dx_, dwide_, dnarrow_;

  struct Segment {
    std::unique_ptr<Graph> graph;
    std::size_t end;  // gradients below it are complete
  };
  std::vector<Segment> segments_;       // of a full micro-batch; empty: no graphs
  std::span<const std::size_t> stops_;  // while they are captured: those that are still to come
  bool capturing_ = false;

  // Of the micro-batch that runs now.
  std::size_t batch_ = 0, time_ = 0, rows_ = 0;
};

}  // namespace muster::runtime::cuda

#include "worker_runtime/cuda/model/device_gpt_runs.h"
#include "worker_runtime/cuda/model/device_gpt_steps.h"
