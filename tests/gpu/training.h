// SPDX-License-Identifier: Apache-2.0
//
// Training as the loop of train/ does it, over the device's engine, without configuration, corpus
// and checkpoints: what the sections of gpu-check step through.
//
// Thread rule: one thread, which has called Device::use().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "tests/gpu/context.h"
#include "worker_runtime/checkpoint/train_tensors.h"
#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/cuda/engine/device_engine.h"
#include "worker_runtime/numerics/scaler.h"

namespace muster::runtime::cuda::gpu_check {

struct TrainingPlan {
  GptConfig model;
  Precision precision = Precision::kF32;
  std::int64_t micro = 1;    // samples of a micro-batch
  std::uint64_t leaves = 1;  // micro-batches of a step
  double bucket_mb = 32;
  // fp16: so large that the first steps of a small run overflow, and the scale has to come down.
  int scale_power = 24;
  std::uint64_t tokens() const { return leaves * static_cast<std::uint64_t>(micro * model.n_ctx); }
};

// A small model of several buckets, with attention on tensor cores; on fakes a tiny one. Its
// micro-batches do not divide among ranks.
TrainingPlan small_plan(bool on_fakes, Precision precision);

// All that the next step depends on.
struct TrainingState {
  TrainTensors tensors;
  std::uint64_t step = 0;
  std::uint64_t updates = 0;
  ScalerState scaler;
};
std::uint64_t digest(const TrainingState& state);
// One file, whole or not at all.
absl::Status save(const TrainingState& state, const std::string& path);
absl::StatusOr<TrainingState> load(const std::string& path);

const char* precision_name(Precision precision);

class Training {
 public:
  // Starts from `master`, or without it from the initial values. `group` must outlive it.
  static absl::StatusOr<std::unique_ptr<Training>> start(const TrainingPlan& plan,
                                                         const Opened& opened, Collectives& group,
                                                         const ExchangeMaker& exchange,
                                                         std::span<const float> master = {});
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  absl::Status resume(TrainingState state);
  absl::StatusOr<TrainingState> state();

  // The mean loss of the step's tokens.
  absl::StatusOr<double> step();
  // Its parts, for the clock: the gradient and its sum over ranks, on the host when it returns.
  absl::StatusOr<GradientFacts> gradient(std::vector<double>& losses);
  // The loss of one micro-batch, without a backward pass.
  absl::StatusOr<double> forward();
  absl::Status close() { return engine_->close(); }

 private:
  Training(const TrainingPlan& plan, Collectives& group);
  double gradient_scale() const;
  std::span<const std::int32_t> tokens(std::uint64_t leaf);

  TrainingPlan plan_;
  Collectives& group_;
  FlatLayout layout_;
  ParallelConfig parallel_;
  ScalerOptions scaling_;
  ScalerState scaler_;
  std::uint64_t step_ = 0;
  std::uint64_t updates_ = 0;
  std::vector<std::int32_t> tokens_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace muster::runtime::cuda::gpu_check
