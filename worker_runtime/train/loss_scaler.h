// SPDX-License-Identifier: Apache-2.0
//
// The loss scale over a run, whichever rules it follows. Fed the agreed overflow flag of every
// step, it answers the same on every rank; its state is in the checkpoint.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include "worker_runtime/checkpoint/manifest.h"
#include "worker_runtime/numerics/scaler.h"
#include "worker_runtime/train/config.h"

namespace muster::runtime {

class LossScaler {
 public:
  explicit LossScaler(const LossScaleConfig& config);

  // Takes over, or hands out, the scaler's part of a checkpoint.
  void restore(const TrainCounters& counters);
  void store(TrainCounters& counters) const;

  double scale() const { return state_.scale; }
  // Whether the scale answers to overflows: then the floor ends a hopeless run, else a count of
  // skipped steps does.
  bool dynamic() const;

  // kStuck: an overflow at the lowest scale allowed.
  ScalerOutcome update(bool overflow);

 private:
  ScalerOutcome update_torch(bool overflow);

  LossScaleConfig config_;
  ScalerState state_;
  std::int64_t clean_steps_ = 0;
};

}  // namespace muster::runtime
