// SPDX-License-Identifier: Apache-2.0
//
// The steps. What decides anything comes out of the control all-reduce or the checkpoint, never
// from this rank alone: that is why all ranks stay equal.
#include <algorithm>
#include <bit>
#include <cmath>

#include "worker_runtime/data/digest.h"
#include "worker_runtime/optim/optimizer.h"
#include "worker_runtime/train/metrics.h"
#include "worker_runtime/train/training_run.h"

namespace muster::runtime {
namespace {

// To the given fraction, as the double that prints shortest.
double rounded(double value, double fraction) {
  return std::round(value * fraction) / fraction;
}

// Where a number that is not finite was met, so that the minimum over ranks is the one to name: the
// first tensor, and in it the rank that made the number before ranks that saw it in the sum.
constexpr std::uint64_t kInTheSum = std::uint64_t{1} << 31U;
std::uint64_t bad_key(std::uint64_t tensor, int rank, bool in_the_sum) {
  if (tensor == kAllFinite) return Control::kNone;
  return tensor << 32U | (in_the_sum ? kInTheSum : 0) | static_cast<std::uint64_t>(rank);
}

std::string bad_text(const FlatLayout& layout, std::uint64_t key) {
  const std::uint64_t tensor = key >> 32U;
  const std::string name = tensor < layout.tensors.size() ? layout.tensors[tensor].name : "padding";
  if ((key & kInTheSum) != 0) return "first in the sum over ranks of the gradient of " + name;
  return "first in the gradient of " + name + " at rank " + std::to_string(key & (kInTheSum - 1));
}

}  // namespace

absl::Status TrainingRun::steps() {
  report("training");
  while (counters_.step < static_cast<std::uint64_t>(config_.steps) && !stop_agreed_) {
    absl::Status status = step();
    if (!status.ok()) return status;
    const auto every = static_cast<std::uint64_t>(config_.eval.every_steps);
    if (every > 0 && counters_.step % every == 0 && !stop_agreed_) status = evaluate();
    if (status.ok() && checkpoint_due(counters_.step)) status = save();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::step() {
  const auto began = std::chrono::steady_clock::now();
  std::vector<double> losses;
  const auto facts = compute(losses);
  if (!facts.ok()) return engine_failure(facts.status());
  const auto all = agree_on_step(losses, *facts);
  if (!all.ok()) return engine_failure(all.status());

  const double nominal = static_cast<double>(batch_.global * config_.model.n_ctx);
  const double scale = scaler_.scale();
  const double unscale = nominal / static_cast<double>(all->tokens) / scale;
  const double norm = norm_of_partials(all->norm_partials, unscale);
  const double lr = learning_rate(config_.schedule, counters_.updates);
  const ScalerOutcome outcome = scaler_.update(all->found_inf);
  if (outcome == ScalerOutcome::kStep) {
    const absl::Status applied = apply(unscale * clip_factor(norm, config_.gradient_clipping), lr);
    if (!applied.ok()) return engine_failure(applied);
  }
  ++counters_.step;
  counters_.samples += static_cast<std::uint64_t>(batch_.global);
  counters_.loss = all->loss_sum / static_cast<double>(all->tokens);
  counters_.bad_steps = all->found_inf ? counters_.bad_steps + 1 : 0;
  scaler_.store(counters_);
  stop_agreed_ = all->stop;
  if (stop_agreed_) overseer_.finishing();

  const double ms = elapsed_ms(began);
  if (is_first() && runtime_.line) {
    runtime_.line(step_line({counters_.step, counters_.samples, counters_.loss, lr, norm, scale,
                             outcome != ScalerOutcome::kStep, rounded(nominal / ms * 1e3, 10),
                             rounded(ms, 1000), group_.generation(), group_.size()}));
  }
  report("training");
  return judge(*all, outcome);
}

// Forward and backward of this rank's micro-batches, and the sum over ranks. The loss is scaled by
// 1 / nominal tokens of the whole step, so that sums over ranks are means, and by the loss scale.
absl::StatusOr<GradientFacts> TrainingRun::compute(std::vector<double>& losses) {
  const auto leaves = static_cast<std::uint64_t>(batch_.leaves());
  const auto micro = static_cast<std::uint64_t>(batch_.micro);
  const double nominal = static_cast<double>(batch_.global * config_.model.n_ctx);
  const auto gradient_scale = static_cast<float>(scaler_.scale() / nominal);
  tokens_.resize(micro * static_cast<std::uint64_t>(dataset_->window_tokens()));
  const auto tokens = [&](std::uint64_t leaf) -> std::span<const std::int32_t> {
    const std::uint64_t first = counters_.samples + leaf * micro;
    dataset_->train_batch(first, micro, tokens_);
    if (runtime_.consumed) runtime_.consumed(first, micro);
    return tokens_;
  };
  return engine_->gradient(leaf_range(leaves, group_.size(), group_.rank()), leaves, tokens,
                           gradient_scale, losses);
}

absl::StatusOr<Control> TrainingRun::agree_on_step(const std::vector<double>& losses,
                                                   const GradientFacts& facts) {
  Control mine;
  mine.found_inf = facts.own_bad != kAllFinite || facts.sum_bad != kAllFinite;
  mine.first_bad = std::min(bad_key(facts.own_bad, group_.rank(), false),
                            bad_key(facts.sum_bad, group_.rank(), true));
  mine.stop = overseer_.stop_requested();
  mine.tokens = losses.size() * static_cast<std::uint64_t>(batch_.micro * config_.model.n_ctx);
  for (const double loss : losses)
    mine.loss_sum += loss;
  mine.norm_partials = facts.norm_partials;
  mine.micro_losses = losses;
  const auto print = fingerprint();
  if (!print.ok()) return print.status();
  mine.fingerprint = *print;
  return control_all_reduce(group_, mine);
}

// What must be equal on all ranks before they step together. The parameters themselves are in it
// where a checkpoint is to be made of the result: no rank's silent error gets published.
absl::StatusOr<std::uint64_t> TrainingRun::fingerprint() const {
  const std::uint64_t facts[] = {layout_.hash,
                                 config_digest_,
                                 counters_.step,
                                 counters_.updates,
                                 counters_.samples,
                                 counters_.bad_steps,
                                 std::bit_cast<std::uint64_t>(scaler_.scale()),
                                 engine_->fingerprint()};
  std::uint64_t print = digest64(std::as_bytes(std::span(facts)));
  if (checkpoint_due(counters_.step + 1)) {
    const auto master = engine_->master();
    if (!master.ok()) return master.status();
    print ^= digest64(std::as_bytes(*master));
  }
  return print;
}

absl::Status TrainingRun::apply(double gradient_factor, double lr) {
  AdamWOptions options = config_.adam;
  options.learning_rate = lr;
  ++counters_.updates;
  return engine_->apply(options, counters_.updates, gradient_factor);
}

// Ends a run that cannot recover. All ranks see the same, and end alike.
absl::Status TrainingRun::judge(const Control& all, ScalerOutcome outcome) {
  if (!all.found_inf) return absl::OkStatus();
  const std::string where = bad_text(layout_, all.first_bad);
  const std::string step = "step " + std::to_string(counters_.step) + ": ";
  if (outcome == ScalerOutcome::kStuck) {
    return fail(kExitNumerics, step + "the gradient overflows at the lowest loss scale, " +
                                   std::to_string(scaler_.scale()) + "; " + where);
  }
  if (!scaler_.dynamic() &&
      counters_.bad_steps >= static_cast<std::uint64_t>(config_.max_bad_steps)) {
    return fail(kExitNumerics, step + std::to_string(counters_.bad_steps) +
                                   " steps in a row had a gradient that is not finite; " + where);
  }
  return absl::OkStatus();
}

}  // namespace muster::runtime
