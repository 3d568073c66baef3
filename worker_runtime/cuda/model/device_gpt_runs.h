// SPDX-License-Identifier: Apache-2.0
//
// DeviceGptModel's micro-batches: what is sent, in which order the steps run, and graphs of them;
// included by device_gpt_model.h alone.
//
// What differs from one micro-batch to the next (tokens, their order, the scale) lies at fixed
// places in device memory, and the loss leaves from one; so a graph stays right.
#pragma once

#include "worker_runtime/cuda/model/device_gpt_model.h"

namespace muster::runtime::cuda {

template <class S>
void DeviceGptModel<S>::send_tokens(std::span<const std::int32_t> tokens, const float* scale) {
  const bool backward = scale != nullptr;
  TokenOrder order;
  if (backward) order = token_order(tokens, time_ + 1, batch_, time_, vocabulary_);
  queue_.check([&] {
    return sender_.send(
        *stream_, tokens, backward ? &order : nullptr, backward ? *scale : 0.0F,
        {tokens_.data(), distinct_.data(), starts_.data(), places_.data(), scale_.data()});
  });
}

template <class S>
void DeviceGptModel<S>::set_size(std::int64_t batch, std::int64_t time) {
  MUSTER_CHECK(batch >= 1 && static_cast<std::size_t>(batch * config_.n_ctx) <= max_rows_);
  MUSTER_CHECK(time >= 1 && time <= config_.n_ctx);
  batch_ = static_cast<std::size_t>(batch);
  time_ = static_cast<std::size_t>(time);
  rows_ = batch_ * time_;
}

template <class S>
void DeviceGptModel<S>::set_full_size() {
  set_size(static_cast<std::int64_t>(max_rows_) / config_.n_ctx, config_.n_ctx);
}

// `scale`: of the backward pass; nullptr: there is none.
template <class S>
void DeviceGptModel<S>::begin(std::span<const std::int32_t> tokens, std::int64_t batch,
                              std::int64_t time, const float* scale) {
  set_size(batch, time);
  MUSTER_CHECK(tokens.size() == static_cast<std::size_t>(batch * (time + 1)));
  for (const std::int32_t token : tokens)
    MUSTER_CHECK(token >= 0 && token < config_.vocab_size);
  send_tokens(tokens, scale);
}

// From the tokens to the last LayerNorm.
template <class S>
void DeviceGptModel<S>::run_forward() {
  queue_.template launch<Embed<S>>(row_grid(rows_, width_),
                                   {tokens_.data(), weight(wte_), weight(wpe_), layers_[0].x.data(),
                                    time_ + 1, batch_, time_, width_});
  for (std::size_t l = 0; l < layers_.size(); ++l)
    layer_forward(layers_[l], l + 1 < layers_.size() ? layers_[l + 1].x.data() : last_.data());
  norm_forward(last_norm_, last_.data());
}

// From there to the gradient of all parameters.
template <class S>
void DeviceGptModel<S>::run_backward(const Ready& ready) {
  queue_.zero(gradients_.data(), layout_.size * sizeof(float));
  head(true);
  norm_backward(last_norm_, last_.data(), true);
  tell(ready, layers_.back().fc_out.bias);
  for (std::size_t l = layers_.size(); l-- > 0;) {
    layer_backward(layers_[l]);
    tell(ready, l > 0 ? layers_[l - 1].fc_out.bias : wpe_);
  }
  embedding_backward();
  tell(ready, layout_.size);
}

template <class S>
void DeviceGptModel<S>::tell(const Ready& ready, std::size_t end) {
  if (capturing_) return cut(end);
  if (ready) queue_.check([&] { return ready(end); });
}

template <class S>
absl::Status DeviceGptModel<S>::plan() {
  set_full_size();
  queue_.only_plan(true);
  run_forward();
  run_backward({});
  queue_.only_plan(false);
  return queue_.take_status();
}

// The steps run as ever, into captures.
template <class S>
absl::Status DeviceGptModel<S>::use_graphs(std::span<const std::size_t> stops) {
  set_full_size();
  segments_.clear();
  stops_ = stops;
  capturing_ = true;
  queue_.check([&] { return stream_->begin_capture(); });
  run_forward();
  run_backward({});
  capturing_ = false;
  absl::Status status = queue_.take_status();
  if (!status.ok()) {
    segments_.clear();
    (void)stream_->end_capture();
  }
  return status;
}

// Ends a graph and begins the next one, where a stop was passed.
template <class S>
void DeviceGptModel<S>::cut(std::size_t end) {
  const std::size_t before = stops_.size();
  while (!stops_.empty() && stops_.front() <= end)
    stops_ = stops_.subspan(1);
  const bool last = end == layout_.size;
  if (stops_.size() == before && !last) return;
  queue_.check([&] {
    auto graph = stream_->end_capture();
    if (!graph.ok()) return graph.status();
    segments_.push_back({*std::move(graph), end});
    return last ? absl::OkStatus() : stream_->begin_capture();
  });
}

template <class S>
void DeviceGptModel<S>::replay(const Ready& ready) {
  for (const Segment& segment : segments_) {
    queue_.check([&] { return stream_->replay(*segment.graph); });
    tell(ready, segment.end);
  }
}

template <class S>
absl::Status DeviceGptModel<S>::queue_backward(std::span<const std::int32_t> tokens,
                                               std::int64_t batch, std::int64_t time, float scale,
                                               double* loss, const Ready& ready) {
  begin(tokens, batch, time, &scale);
  if (!segments_.empty() && rows_ == max_rows_) {
    replay(ready);
  } else {
    run_forward();
    run_backward(ready);
  }
  if (loss != loss_.data()) queue_.copy(loss, loss_.data(), sizeof(double));
  return queue_.take_status();
}

template <class S>
absl::StatusOr<double> DeviceGptModel<S>::forward(std::span<const std::int32_t> tokens,
                                                  std::int64_t batch, std::int64_t time) {
  begin(tokens, batch, time, nullptr);
  run_forward();
  head(false);
  double loss = 0;
  queue_.to_host(&loss, loss_.data(), sizeof(loss));
  queue_.synchronize();
  if (absl::Status status = queue_.take_status(); !status.ok()) return status;
  return loss;
}

}  // namespace muster::runtime::cuda
