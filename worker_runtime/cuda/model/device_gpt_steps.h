// SPDX-License-Identifier: Apache-2.0
//
// The bodies of DeviceGptModel; included by device_gpt_model.h alone.
#pragma once

#include "worker_runtime/cuda/model/device_gpt_model.h"

namespace muster::runtime::cuda {

// Logits that the head works on at a time.
inline constexpr std::size_t kLogitsRoom = std::size_t{1} << 26U;

template <class S>
DeviceGptModel<S>::DeviceGptModel(const GptConfig& config, std::int64_t max_batch,
                                  std::unique_ptr<Stream> stream,
                                  std::unique_ptr<DeviceProducts> products)
    : config_(config),
      layout_(flat_layout(config)),
      stream_(std::move(stream)),
      products_(std::move(products)),
      queue_(*stream_, *products_),
      width_(static_cast<std::size_t>(config.n_embd)),
      heads_(static_cast<std::size_t>(config.n_head)),
      vocabulary_(static_cast<std::size_t>(config.vocab_size)),
      max_rows_(static_cast<std::size_t>(max_batch * config.n_ctx)),
      head_rows_(std::min(max_rows_, std::max<std::size_t>(16, kLogitsRoom / vocabulary_))),
      logits_stride_((vocabulary_ + 63) / 64 * 64),
      wte_(offset_of("wte.weight")),
      wpe_(offset_of("wpe.weight")) {
  reserve();
}

template <class S>
void DeviceGptModel<S>::reserve() {
  const std::size_t narrow = max_rows_ * width_;
  const std::size_t context = static_cast<std::size_t>(config_.n_ctx);
  weights_ = arena_.reserve<S>(layout_.size);
  gradients_ = arena_.reserve<float>(layout_.size);
  for (std::int64_t l = 0; l < config_.n_layer; ++l)
    layers_.push_back(make_layer(l));
  last_ = arena_.reserve<S>(narrow);
  last_norm_ = make_norm("ln_f");
  tokens_ = arena_.reserve<std::int32_t>(max_rows_ / context * (context + 1));
  distinct_ = arena_.reserve<std::int32_t>(max_rows_);
  starts_ = arena_.reserve<std::uint32_t>(max_rows_ + 1);
  places_ = arena_.reserve<std::uint32_t>(max_rows_);
  logits_ = arena_.reserve<float>(head_rows_ * logits_stride_);
  losses_ = arena_.reserve<float>(head_rows_);
  loss_ = arena_.reserve<double>(1);
  scale_ = arena_.reserve<float>(1);
  partials_ = arena_.reserve<float>(row_blocks(max_rows_) * 4 * width_);
  dots_ = arena_.reserve<float>(max_rows_ * heads_);
  dx_ = arena_.reserve<S>(narrow);
  dnarrow_ = arena_.reserve<S>(narrow);
  dwide_ = arena_.reserve<S>(4 * narrow);
}

template <class S>
absl::Status DeviceGptModel<S>::allocate(Device& device) {
  const std::size_t context = static_cast<std::size_t>(config_.n_ctx);
  absl::Status room = sender_.allocate(device, max_rows_ / context * (context + 1), max_rows_);
  return room.ok() ? arena_.allocate(device) : room;
}

template <class S>
std::size_t DeviceGptModel<S>::offset_of(const std::string& name) const {
  const TensorInfo* tensor = layout_.find(name);
  MUSTER_CHECK(tensor != nullptr);
  return tensor->offset;
}

template <class S>
auto DeviceGptModel<S>::make_norm(const std::string& name) -> Norm {
  return {offset_of(name + ".weight"), offset_of(name + ".bias"), arena_.reserve<float>(max_rows_),
          arena_.reserve<float>(max_rows_), arena_.reserve<S>(max_rows_ * width_)};
}

template <class S>
auto DeviceGptModel<S>::make_linear(const std::string& name, std::size_t in, std::size_t out) const
    -> Linear {
  return {offset_of(name + ".weight"), offset_of(name + ".bias"), in, out};
}

template <class S>
auto DeviceGptModel<S>::make_layer(std::int64_t index) -> Layer {
  const std::string h = "h." + std::to_string(index) + ".";
  const std::size_t narrow = max_rows_ * width_;
  return {.x = arena_.reserve<S>(narrow),
          .qkv = arena_.reserve<S>(3 * narrow),
          .attended = arena_.reserve<S>(narrow),
          .middle = arena_.reserve<S>(narrow),
          .pre = arena_.reserve<S>(4 * narrow),
          .act = arena_.reserve<S>(4 * narrow),
          .lse = arena_.reserve<float>(max_rows_ * heads_),
          .norm1 = make_norm(h + "ln_1"),
          .norm2 = make_norm(h + "ln_2"),
          .attn = make_linear(h + "attn.c_attn", width_, 3 * width_),
          .attn_out = make_linear(h + "attn.c_proj", width_, width_),
          .fc = make_linear(h + "mlp.c_fc", width_, 4 * width_),
          .fc_out = make_linear(h + "mlp.c_proj", 4 * width_, width_)};
}

template <class S>
AttentionSize DeviceGptModel<S>::attention_size() const {
  return {static_cast<unsigned>(time_), static_cast<unsigned>(heads_),
          static_cast<unsigned>(width_ / heads_)};
}

// The masters pass through the gradient's memory: between steps nobody needs it.
template <class S>
absl::Status DeviceGptModel<S>::load_weights(std::span<const float> master) {
  MUSTER_CHECK(master.size() == layout_.size);
  const std::size_t bytes = master.size_bytes();
  if constexpr (std::is_same_v<S, float>) {
    queue_.to_device(weights_.data(), master.data(), bytes);
  } else {
    queue_.to_device(gradients_.data(), master.data(), bytes);
    queue_.template launch<Cast<float, S>>(element_grid(layout_.size),
                                           {gradients_.data(), weights_.data(), layout_.size});
  }
  return queue_.take_status();
}

template <class S>
absl::Status DeviceGptModel<S>::load_device_weights(const float* master) {
  if constexpr (std::is_same_v<S, float>) {
    queue_.copy(weights_.data(), master, layout_.size * sizeof(float));
  } else {
    queue_.template launch<Cast<float, S>>(element_grid(layout_.size),
                                           {master, weights_.data(), layout_.size});
  }
  return queue_.take_status();
}

// A launch a tensor, its padding included: decay is one or the other in all of it.
template <class S>
absl::Status DeviceGptModel<S>::adamw(const UpdateState* update, const float* gradients,
                                      const DeviceState& state) {
  for (std::size_t i = 0; i < layout_.tensors.size(); ++i) {
    const std::size_t at = layout_.tensors[i].offset;
    const std::size_t end =
        i + 1 < layout_.tensors.size() ? layout_.tensors[i + 1].offset : layout_.size;
    queue_.template launch<AdamW<S>>(
        element_grid(end - at),
        {update, gradients + at, state.master + at, state.first + at, state.second + at,
         weights_.data() + at, end - at, at, layout_.tensors[i].decay ? 1U : 0U});
  }
  return queue_.take_status();
}

template <class S>
void DeviceGptModel<S>::norm_forward(const Norm& norm, const S* x) {
  queue_.template launch<NormForward<S>>(
      warp_row_grid(rows_), {x, weight(norm.weight), weight(norm.bias), norm.out.data(),
                             norm.mean.data(), norm.rstd.data(), rows_, width_});
}

// The gradient that arrives in dnarrow_, passed on into dx_.
template <class S>
void DeviceGptModel<S>::norm_backward(const Norm& norm, const S* x, bool replace) {
  const std::size_t blocks = row_blocks(rows_);
  float* weights = partials_.data();
  float* biases = weights + blocks * width_;
  queue_.template launch<NormBackward<S, S>>(
      warp_row_grid(rows_), {x, weight(norm.weight), norm.mean.data(), norm.rstd.data(),
                             dnarrow_.data(), dx_.data(), rows_, width_, replace ? 1U : 0U});
  queue_.template launch<NormPartials<S, S>>(
      NormPartials<S, S>::grid(rows_, width_),
      {x, norm.mean.data(), norm.rstd.data(), dnarrow_.data(), weights, biases, rows_, width_});
  const Grid columns = AddPartials::grid(width_);
  queue_.template launch<AddPartials>(columns, {weights, gradient(norm.weight), blocks, width_});
  queue_.template launch<AddPartials>(columns, {biases, gradient(norm.bias), blocks, width_});
}

template <class S>
void DeviceGptModel<S>::linear_forward(const Linear& l, const S* x, const S* residual, S* d) {
  queue_.product({.m = rows_,
                  .n = l.out,
                  .k = l.in,
                  .in = number_of<S>,
                  .out = number_of<S>,
                  .a = x,
                  .b = weight(l.weight),
                  .bias = weight(l.bias),
                  .c = residual,
                  .d = d});
}

template <class S>
void DeviceGptModel<S>::add_column_sums(const S* x, std::size_t width, float* sums) {
  queue_.template launch<ColumnPartials<S>>(ColumnPartials<S>::grid(rows_, width),
                                            {x, partials_.data(), rows_, width});
  queue_.template launch<AddPartials>(AddPartials::grid(width),
                                      {partials_.data(), sums, row_blocks(rows_), width});
}

template <class S>
void DeviceGptModel<S>::linear_backward(const Linear& l, const S* x, const S* dy, S* dx) {
  queue_.product({.transpose_b = true,
                  .m = rows_,
                  .n = l.in,
                  .k = l.out,
                  .in = number_of<S>,
                  .out = number_of<S>,
                  .a = dy,
                  .b = weight(l.weight),
                  .d = dx});
  queue_.product({.transpose_a = true,
                  .m = l.in,
                  .n = l.out,
                  .k = rows_,
                  .in = number_of<S>,
                  .out = Number::kF32,
                  .a = x,
                  .b = dy,
                  .d = gradient(l.weight)});
  add_column_sums(dy, l.out, gradient(l.bias));
}

template <class S>
void DeviceGptModel<S>::attention_forward(const Layer& layer) {
  const AttentionSize size = attention_size();
  const unsigned batch = static_cast<unsigned>(batch_);
  const AttentionArgs<S> args{layer.qkv.data(), layer.attended.data(), layer.lse.data(), size};
  if constexpr (!std::is_same_v<S, float>) {
    const Grid grid = attention_grid(size, batch);
    if (size.head_size == 64) return queue_.template launch<Attention<S, 64>>(grid, args);
    if (size.head_size == 128) return queue_.template launch<Attention<S, 128>>(grid, args);
  }
  queue_.template launch<PlainAttention<S>>(plain_attention_grid(size, batch), args);
}

// From dnarrow_, the gradient of what it attended, to dwide_, that of queries, keys and values.
template <class S>
void DeviceGptModel<S>::attention_backward(const Layer& layer) {
  const AttentionSize size = attention_size();
  const unsigned batch = static_cast<unsigned>(batch_);
  queue_.template launch<AttentionDots<S>>(AttentionDots<S>::grid(size, batch),
                                           {layer.attended.data(), dnarrow_.data(), dots_.data(),
                                            size, static_cast<unsigned>(rows_ * heads_)});
  const AttentionBackwardArgs<S> args{layer.qkv.data(), dnarrow_.data(), layer.lse.data(),
                                      dots_.data(),     dwide_.data(),   size};
  const auto launch_both = [&]<class Keys, class Query>(Grid grid) {
    queue_.template launch<Keys>(grid, args);
    queue_.template launch<Query>(grid, args);
  };
  if constexpr (!std::is_same_v<S, float>) {
    const Grid grid = attention_grid(size, batch);
    if (size.head_size == 64) {
      return launch_both
          .template operator()<AttentionKeyGradients<S, 64>, AttentionQueryGradient<S, 64>>(grid);
    }
    if (size.head_size == 128) {
      return launch_both
          .template operator()<AttentionKeyGradients<S, 128>, AttentionQueryGradient<S, 128>>(grid);
    }
  }
  launch_both.template operator()<PlainKeyGradients<S>, PlainQueryGradient<S>>(
      plain_attention_grid(size, batch));
}

template <class S>
void DeviceGptModel<S>::layer_forward(const Layer& layer, S* next) {
  norm_forward(layer.norm1, layer.x.data());
  linear_forward(layer.attn, layer.norm1.out.data(), nullptr, layer.qkv.data());
  attention_forward(layer);
  linear_forward(layer.attn_out, layer.attended.data(), layer.x.data(), layer.middle.data());
  norm_forward(layer.norm2, layer.middle.data());
  linear_forward(layer.fc, layer.norm2.out.data(), nullptr, layer.pre.data());
  const std::size_t count = rows_ * 4 * width_;
  queue_.template launch<Gelu<S>>(element_grid(count), {layer.pre.data(), layer.act.data(), count});
  linear_forward(layer.fc_out, layer.act.data(), layer.middle.data(), next);
}

template <class S>
void DeviceGptModel<S>::layer_backward(const Layer& layer) {
  linear_backward(layer.fc_out, layer.act.data(), dx_.data(), dwide_.data());
  const std::size_t count = rows_ * 4 * width_;
  queue_.template launch<GeluBackward<S, S>>(
      element_grid(count), {dwide_.data(), layer.pre.data(), dwide_.data(), count});
  linear_backward(layer.fc, layer.norm2.out.data(), dwide_.data(), dnarrow_.data());
  norm_backward(layer.norm2, layer.middle.data(), false);
  linear_backward(layer.attn_out, layer.attended.data(), dx_.data(), dnarrow_.data());
  attention_backward(layer);
  linear_backward(layer.attn, layer.norm1.out.data(), dwide_.data(), dnarrow_.data());
  norm_backward(layer.norm1, layer.x.data(), false);
}

// Logits and loss; backward also d(last_norm_.out) in dnarrow_ and wte's share.
template <class S>
void DeviceGptModel<S>::head(bool backward) {
  queue_.zero(loss_.data(), sizeof(double));
  const std::size_t stride = logits_stride_ * sizeof(float) / sizeof(S);  // of their gradients
  const S* dlogits = reinterpret_cast<const S*>(logits_.data());
  for (std::size_t first = 0; first < rows_; first += head_rows_) {
    const std::size_t rows = std::min(head_rows_, rows_ - first);
    const S* x = last_norm_.out.data() + first * width_;
    queue_.product({.transpose_b = true,
                    .m = rows,
                    .n = vocabulary_,
                    .k = width_,
                    .in = number_of<S>,
                    .out = Number::kF32,
                    .a = x,
                    .b = weight(wte_),
                    .d = logits_.data(),
                    .ldc = logits_stride_});
    queue_.template launch<CrossEntropy<S>>(
        CrossEntropy<S>::grid(rows),
        {logits_.data(), tokens_.data() + 1, losses_.data(), time_ + 1, time_, first, rows,
         vocabulary_, vocabulary_, logits_stride_, scale_.data(), backward ? 1U : 0U});
    queue_.template launch<SumLosses>(SumLosses::grid(), {losses_.data(), loss_.data(), rows});
    if (!backward) continue;
    queue_.product({.m = rows,
                    .n = width_,
                    .k = vocabulary_,
                    .in = number_of<S>,
                    .out = number_of<S>,
                    .a = dlogits,
                    .b = weight(wte_),
                    .d = dnarrow_.data() + first * width_,
                    .lda = stride});
    queue_.product({.transpose_a = true,
                    .m = vocabulary_,
                    .n = width_,
                    .k = rows,
                    .in = number_of<S>,
                    .out = Number::kF32,
                    .a = dlogits,
                    .b = x,
                    .c = first == 0 ? nullptr : gradient(wte_),
                    .d = gradient(wte_),
                    .lda = stride});
  }
}

template <class S>
void DeviceGptModel<S>::embedding_backward() {
  queue_.template launch<TokenGradient<S>>(
      TokenGradient<S>::grid(rows_, width_),
      {distinct_.data(), starts_.data(), places_.data(), dx_.data(), gradient(wte_), width_});
  queue_.template launch<PositionGradient<S>>(row_grid(time_, width_),
                                              {dx_.data(), gradient(wpe_), batch_, time_, width_});
}

}  // namespace muster::runtime::cuda
