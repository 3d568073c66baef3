// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/loss_scaler.h"

#include <algorithm>

namespace muster::runtime {

using Kind = LossScaleConfig::Kind;

LossScaler::LossScaler(const LossScaleConfig& config) : config_(config) {
  if (config_.kind == Kind::kDeepSpeed) state_ = numerics::scaler_start(config_.deepspeed);
  if (config_.kind == Kind::kTorch) state_.scale = config_.init_scale;
}

void LossScaler::restore(const TrainCounters& counters) {
  state_ = counters.scaler;
  clean_steps_ = counters.clean_steps;
}

void LossScaler::store(TrainCounters& counters) const {
  counters.scaler = state_;
  counters.clean_steps = clean_steps_;
}

bool LossScaler::dynamic() const {
  return config_.kind == Kind::kTorch ||
         (config_.kind == Kind::kDeepSpeed && config_.deepspeed.loss_scale == 0);
}

ScalerOutcome LossScaler::update(bool overflow) {
  if (config_.kind == Kind::kDeepSpeed) {
    return numerics::scaler_update(config_.deepspeed, state_, overflow);
  }
  if (config_.kind == Kind::kTorch) return update_torch(overflow);
  return overflow ? ScalerOutcome::kSkip : ScalerOutcome::kStep;
}

// torch.amp.GradScaler's rule; the floor is ours: torch halves for ever.
ScalerOutcome LossScaler::update_torch(bool overflow) {
  if (overflow) {
    clean_steps_ = 0;
    if (state_.scale <= config_.min_scale) return ScalerOutcome::kStuck;
    state_.scale = std::max(config_.min_scale, state_.scale * config_.backoff_factor);
    return ScalerOutcome::kSkip;
  }
  if (++clean_steps_ == config_.growth_interval) {
    clean_steps_ = 0;
    if (state_.scale < kMaxLossScale) state_.scale *= config_.growth_factor;
  }
  return ScalerOutcome::kStep;
}

}  // namespace muster::runtime
