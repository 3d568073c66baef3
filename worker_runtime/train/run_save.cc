// SPDX-License-Identifier: Apache-2.0
//
// Evaluation, checkpoints and the end of a run.
#include <algorithm>

#include "worker_runtime/checkpoint/param_hash.h"
#include "worker_runtime/data/order.h"
#include "worker_runtime/train/metrics.h"
#include "worker_runtime/train/training_run.h"

namespace muster::runtime {

// The mean loss over validation windows, dealt to the ranks like micro-batches and added in their
// order: the same number at any world size.
absl::Status TrainingRun::evaluate() {
  const auto began = std::chrono::steady_clock::now();
  report("evaluating");
  const auto micro = static_cast<std::uint64_t>(batch_.micro);
  const std::uint64_t windows = dataset_->validation_windows();
  std::uint64_t batches = (windows + micro - 1) / micro;
  const auto wanted = static_cast<std::uint64_t>(config_.eval.batches);
  if (wanted > 0) batches = std::min(batches, wanted);
  const LeafRange mine = leaf_range(batches, group_.size(), group_.rank());
  const auto row = static_cast<std::uint64_t>(dataset_->window_tokens());
  Control control;
  const auto print = fingerprint();
  if (!print.ok()) return engine_failure(print.status());
  control.fingerprint = *print;
  for (std::uint64_t i = mine.first; i < mine.first + mine.count; ++i) {
    const std::uint64_t first = i * micro;
    const std::uint64_t count = std::min(micro, windows - first);
    tokens_.resize(count * row);
    dataset_->validation_batch(first, count, tokens_);
    const auto loss = engine_->forward(tokens_, static_cast<std::int64_t>(count));
    if (!loss.ok()) return engine_failure(loss.status());
    control.micro_losses.push_back(*loss);
    control.loss_sum += control.micro_losses.back();
    control.tokens += count * (row - 1);
  }
  const auto all = control_all_reduce(group_, control);
  if (!all.ok()) return peer_failure(all.status());
  if (is_first() && runtime_.line) {
    runtime_.line(eval_line(counters_.step, counters_.samples,
                            all->loss_sum / static_cast<double>(all->tokens), all->tokens,
                            elapsed_ms(began)));
  }
  return absl::OkStatus();
}

bool TrainingRun::checkpoint_due(std::uint64_t step) const {
  const auto every = static_cast<std::uint64_t>(config_.checkpoint.every_steps);
  return every > 0 && step % every == 0;
}

Manifest TrainingRun::manifest() const {
  Manifest made;
  made.world_size = group_.size();
  made.counters = counters_;
  made.seed = config_.seed;
  made.order_version = kOrderVersion;
  made.config = config_text_;
  made.config_digest = config_digest_;
  made.corpus_bytes = dataset_->corpus().bytes.size();
  made.corpus_digest = dataset_->corpus().digest;
  made.build = runtime_.build;
  made.products = engine_->products();
  return made;
}

absl::Status TrainingRun::save() {
  if (!store_) {
    if (!config_.checkpoint.dir.empty()) overseer_.awaits_storage();
    return absl::OkStatus();
  }
  report("saving");
  const auto tensors = engine_->tensors();
  if (!tensors.ok()) return engine_failure(tensors.status());
  overseer_.storage_begins();
  const auto saved = store_->save(manifest(), layout_, **tensors);
  overseer_.storage_ends();
  if (!saved.ok()) {
    return fail(kExitStorage, "cannot save step " + std::to_string(counters_.step) + ": " +
                                  std::string(saved.status().message()));
  }
  saved_step_ = counters_.step;
  checkpoint_step_ = counters_.step;
  report("training");
  return absl::OkStatus();
}

// Nobody ends before the last checkpoint stands: a rank that waited in vain says so. Rank 0 itself
// has nothing to wait for any more.
absl::Status TrainingRun::finish(bool stopped) {
  overseer_.finishing();
  if (store_ && saved_step_ != counters_.step && checkpoint_step_ != counters_.step) {
    const absl::Status saved = save();
    if (!saved.ok()) return saved;
  }
  absl::Status together = barrier(group_);
  if (together.ok()) together = engine_->close();
  if (!together.ok() && !is_first()) return engine_failure(together);
  const auto master = engine_->master();
  if (!master.ok()) return engine_failure(master.status());
  result_.param_hash = param_hash(layout_, *master);
  if (!is_first() || !runtime_.line) return absl::OkStatus();
  runtime_.line(stopped ? stopped_line(counters_, store_.has_value())
                        : done_line(counters_, result_.param_hash));
  return absl::OkStatus();
}

}  // namespace muster::runtime
