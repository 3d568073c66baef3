// SPDX-License-Identifier: Apache-2.0
//
// Learning rate schedules with DeepSpeed's names, keys and meaning, as functions of the number of
// updates applied so far: skipped steps do not move them, and nothing has to be saved.
// DeepSpeed steps its scheduler after the optimizer and numbers iterations from -1, so the first
// update runs at the start value (0 with WarmupCosineLR), the second at iteration 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace muster::runtime {

struct Schedule {
  enum class Kind : std::uint8_t { kConstant, kWarmupLr, kWarmupDecayLr, kWarmupCosineLr };
  enum class Warmup : std::uint8_t { kLog, kLinear };
  Kind kind = Kind::kConstant;
  double base_rate = 1e-3;      // the optimizer's lr: kConstant and WarmupCosineLR
  double warmup_min_lr = 0;     // WarmupLR, WarmupDecayLR
  double warmup_max_lr = 1e-3;  // WarmupLR, WarmupDecayLR
  double warmup_min_ratio = 0;  // WarmupCosineLR
  double cos_min_ratio = 1e-4;  // WarmupCosineLR
  Warmup warmup_type = Warmup::kLog;
  std::int64_t warmup_num_steps = 1000;  // below 2 counts as 2
  std::int64_t total_num_steps = 0;      // WarmupDecayLR, WarmupCosineLR
};

// The rate of the update that follows `updates` applied ones.
inline double learning_rate(const Schedule& s, std::uint64_t updates) {
  if (s.kind == Schedule::Kind::kConstant) return s.base_rate;
  const bool cosine = s.kind == Schedule::Kind::kWarmupCosineLr;
  const double iteration = static_cast<double>(updates) - 1;
  if (iteration < 0) return cosine ? 0 : s.warmup_min_lr;
  const double warmup = static_cast<double>(std::max<std::int64_t>(2, s.warmup_num_steps));
  const double total = static_cast<double>(s.total_num_steps);
  const double span = std::max(1.0, total - warmup);
  double progress = 1;
  if (iteration < warmup) {
    progress = s.warmup_type == Schedule::Warmup::kLog ? std::log(iteration + 1) / std::log(warmup)
                                                       : iteration / warmup;
    if (cosine) progress = s.warmup_min_ratio + progress * (1 - s.warmup_min_ratio);
  } else if (cosine) {
    const double done = std::min(1.0, (iteration - warmup + 1) / span);
    const double wave = (1 + std::cos(std::numbers::pi * done)) / 2;
    progress = std::max(0.0, s.cos_min_ratio + (1 - s.cos_min_ratio) * wave);
  } else if (s.kind == Schedule::Kind::kWarmupDecayLr) {
    progress = std::max(0.0, (total - iteration) / span);
  }
  if (cosine) return s.base_rate * progress;
  return s.warmup_min_lr + (s.warmup_max_lr - s.warmup_min_lr) * progress;
}

}  // namespace muster::runtime
