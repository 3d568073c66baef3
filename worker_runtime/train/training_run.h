// SPDX-License-Identifier: Apache-2.0
//
// The inside of train(): one object a rank and run. start() in run_start.cc, the steps in
// run_steps.cc, saving and evaluation in run_save.cc.
//
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "worker_runtime/checkpoint/checkpoint_store.h"
#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/data/dataset.h"
#include "worker_runtime/model/gpt.h"
#include "worker_runtime/train/engine.h"
#include "worker_runtime/train/loss_scaler.h"
#include "worker_runtime/train/trainer.h"
#include "worker_runtime/train/watched.h"

namespace muster::runtime {

class TrainingRun {
 public:
  // Both must outlive the object.
  TrainingRun(const TrainConfig& config, const TrainRuntime& runtime);

  TrainResult run();

 private:
  // Every step below returns a status; where it is not OK, the result's code and message stand.
  absl::Status fail(int code, const std::string& message);
  absl::Status peer_failure(const absl::Status& status);
  absl::Status storage_failure(const absl::Status& status);
  // What an engine could not do.
  absl::Status engine_failure(const absl::Status& status);

  absl::Status start();
  absl::Status read_data();
  absl::Status open_store(std::optional<LoadedCheckpoint>& loaded);
  absl::Status agree(bool& probed);
  absl::Status settle_batch(const std::optional<Manifest>& manifest);
  absl::Status compare(const Manifest& manifest);
  absl::Status fill_tensors(const std::optional<Manifest>& manifest, TrainTensors& tensors);
  absl::Status make_engine(TrainTensors tensors, const std::optional<Manifest>& manifest);
  absl::Status compare_products(const std::optional<Manifest>& manifest);

  absl::Status steps();
  absl::Status step();
  absl::StatusOr<GradientFacts> compute(std::vector<double>& losses);
  absl::StatusOr<Control> agree_on_step(const std::vector<double>& losses,
                                        const GradientFacts& facts);
  absl::Status apply(double gradient_factor, double lr);
  absl::Status judge(const Control& all, ScalerOutcome outcome);
  absl::StatusOr<std::uint64_t> fingerprint() const;
  bool checkpoint_due(std::uint64_t step) const;

  absl::Status evaluate();
  absl::Status save();
  absl::Status finish(bool stopped);
  Manifest manifest() const;

  void note(const std::string& text) const;
  void report(const char* state) const;
  bool is_first() const { return group_.rank() == 0; }
  double elapsed_ms(std::chrono::steady_clock::time_point since) const;

  const TrainConfig& config_;
  const TrainRuntime& runtime_;
  Overseer idle_;  // where none is given
  Overseer& overseer_;
  WatchedCollectives group_;
  FlatLayout layout_;
  Batch batch_;
  std::string config_text_;
  std::uint64_t config_digest_ = 0;
  std::optional<Dataset> dataset_;
  std::optional<CheckpointStore> store_;  // rank 0 with checkpoint.dir
  TrainCounters counters_;
  LossScaler scaler_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::int32_t> tokens_;
  std::uint64_t checkpoint_step_ = 0;        // the last this rank knows of
  std::optional<std::uint64_t> saved_step_;  // a checkpoint of this step stands
  bool stop_agreed_ = false;
  TrainResult result_;
};

}  // namespace muster::runtime
