// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's dynamic loss scaler as a pure state machine: `fp16` of the configuration in, the
// agreed overflow flag of each step in, the next scale out. Every rank computes the same.
// The whole state is plain data and belongs into the checkpoint.
#pragma once

#include <cstdint>

#include "worker_runtime/numerics/hd.h"

namespace muster::runtime {

// The keys of DeepSpeed's `fp16` section.
struct ScalerOptions {
  double loss_scale = 0;  // 0: dynamic; else a fixed scale
  int initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
};

struct ScalerState {
  double scale = 1;
  std::uint64_t iterations = 0;     // steps seen, skipped ones too
  std::int64_t last_overflow = -1;  // iteration of the last overflow
  std::int64_t hysteresis = 0;      // overflows left to tolerate before the scale is halved, plus 1
  bool operator==(const ScalerState&) const = default;
};

enum class ScalerOutcome : std::uint8_t {
  kStep,   // apply the update
  kSkip,   // overflow: skip it
  kStuck,  // overflow at min_loss_scale: halving cannot help any more (exit 80)
};

// Doubling ends here: an FP32 gradient times more would be infinite by itself.
inline constexpr double kMaxLossScale = 0x1p100;

namespace numerics {

MUSTER_HD ScalerState scaler_start(const ScalerOptions& options) {
  ScalerState state;
  state.scale = options.loss_scale;
  if (options.loss_scale == 0) {
    state.scale = 1;
    for (int i = 0; i < options.initial_scale_power; ++i)
      state.scale *= 2;
  }
  state.hysteresis = options.hysteresis;
  return state;
}

MUSTER_HD ScalerOutcome scaler_overflow(const ScalerOptions& options, ScalerState& state) {
  const std::int64_t now = static_cast<std::int64_t>(state.iterations++);
  if (options.loss_scale != 0) return ScalerOutcome::kSkip;
  state.last_overflow = now;
  if (options.hysteresis != 1 && state.hysteresis != 1) {
    --state.hysteresis;
    return ScalerOutcome::kSkip;
  }
  if (state.scale <= options.min_loss_scale) return ScalerOutcome::kStuck;
  state.scale = state.scale / 2;
  if (state.scale < options.min_loss_scale) state.scale = options.min_loss_scale;
  return ScalerOutcome::kSkip;
}

// Consumes one step. Pure: the same state and flag give the same result everywhere.
MUSTER_HD ScalerOutcome scaler_update(const ScalerOptions& options, ScalerState& state,
                                      bool overflow) {
  if (overflow) return scaler_overflow(options, state);
  const std::int64_t now = static_cast<std::int64_t>(state.iterations++);
  if (options.loss_scale != 0) return ScalerOutcome::kStep;
  if (options.consecutive_hysteresis) state.hysteresis = options.hysteresis;
  const std::int64_t clean = now - state.last_overflow - 1;
  if (clean > 0 && clean % options.loss_scale_window == 0) {
    state.hysteresis = options.hysteresis;
    if (state.scale < kMaxLossScale) state.scale *= 2;
  }
  return ScalerOutcome::kStep;
}

}  // namespace numerics
}  // namespace muster::runtime
