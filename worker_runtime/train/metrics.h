// SPDX-License-Identifier: Apache-2.0
//
// The lines that a run writes on rank 0: one JSON object each, without a newline. Numbers that
// JSON does not know (NaN, infinity) are null.
//
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <string>

#include "worker_runtime/checkpoint/manifest.h"

namespace muster::runtime {

struct StepLine {
  std::uint64_t step = 0;
  std::uint64_t samples = 0;
  double loss = 0;        // mean over tokens, nats
  double lr = 0;          // of this step, applied or not
  double grad_norm = 0;   // before clipping
  double loss_scale = 1;  // that this step was computed with
  bool skipped = false;
  double tokens_per_s = 0;
  double step_ms = 0;
  std::int64_t generation = 0;
  int world_size = 1;
};

std::string step_line(const StepLine& line);
std::string eval_line(std::uint64_t step, std::uint64_t samples, double loss, std::uint64_t tokens,
                      double eval_ms);
std::string done_line(const TrainCounters& counters, const std::string& param_hash);
// `saved`: whether a checkpoint of this step exists.
std::string stopped_line(const TrainCounters& counters, bool saved);

}  // namespace muster::runtime
