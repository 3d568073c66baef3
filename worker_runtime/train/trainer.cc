// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/trainer.h"

#include "worker_runtime/train/training_run.h"

namespace muster::runtime {

TrainingRun::TrainingRun(const TrainConfig& config, const TrainRuntime& runtime)
    : config_(config),
      runtime_(runtime),
      overseer_(runtime.overseer != nullptr ? *runtime.overseer : idle_),
      group_(runtime.group, overseer_),
      layout_(flat_layout(config.model)),
      scaler_(config.loss_scale) {
  scaler_.store(counters_);
}

TrainResult TrainingRun::run() {
  absl::Status status = start();
  if (status.ok()) status = steps();
  if (status.ok()) {
    // Asked to stop during the very last step: there was nothing left to stop.
    const bool stopped = counters_.step < static_cast<std::uint64_t>(config_.steps);
    status = finish(stopped);
    if (status.ok()) result_.exit_code = stopped ? kExitStopped : kExitDone;
  }
  result_.counters = counters_;
  return result_;
}

absl::Status TrainingRun::fail(int code, const std::string& message) {
  result_.exit_code = code;
  result_.message = message;
  return absl::AbortedError(message);
}

absl::Status TrainingRun::peer_failure(const absl::Status& status) {
  result_.peer = group_.lost_peer();
  return fail(error_exit_code(status), std::string(status.message()));
}

absl::Status TrainingRun::storage_failure(const absl::Status& status) {
  const bool users = absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
                     absl::IsUnimplemented(status);
  return fail(users ? kExitConfiguration : kExitStorage, std::string(status.message()));
}

absl::Status TrainingRun::engine_failure(const absl::Status& status) {
  const bool peers = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status) ||
                     absl::IsDeadlineExceeded(status);
  if (peers) return peer_failure(status);
  return fail(kExitDevice, std::string(status.message()));
}

void TrainingRun::note(const std::string& text) const {
  if (runtime_.note) runtime_.note(text);
}

void TrainingRun::report(const char* state) const {
  if (!runtime_.progress) return;
  runtime_.progress({counters_.step, counters_.loss, counters_.samples, checkpoint_step_, state});
}

double TrainingRun::elapsed_ms(std::chrono::steady_clock::time_point since) const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since)
      .count();
}

TrainResult train(const TrainConfig& config, const TrainRuntime& runtime) {
  return TrainingRun(config, runtime).run();
}

}  // namespace muster::runtime
