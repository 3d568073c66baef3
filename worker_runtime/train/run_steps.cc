// SPDX-License-Identifier: Apache-2.0
//
// The steps. What decides anything comes out of the control all-reduce or the checkpoint, never
// from this rank alone: that is why all ranks stay equal.
#include <algorithm>
#include <bit>
#include <cmath>

#include "worker_runtime/data/digest.h"
#include "worker_runtime/numerics/reduce.h"
#include "worker_runtime/optim/optimizer.h"
#include "worker_runtime/train/metrics.h"
#include "worker_runtime/train/training_run.h"

namespace muster::runtime {
namespace {

// To the given fraction, as the double that prints shortest.
double rounded(double value, double fraction) {
  return std::round(value * fraction) / fraction;
}

// The elements of the norm blocks that a rank looks at.
struct BlockRange {
  std::size_t offset = 0;
  std::size_t count = 0;
};
BlockRange own_blocks(std::size_t elements, int size, int rank) {
  const std::size_t blocks = (elements + numerics::kNormBlock - 1) / numerics::kNormBlock;
  const LeafRange range = leaf_range(blocks, size, rank);
  const std::size_t begin = range.first * numerics::kNormBlock;
  const std::size_t end = std::min(elements, (range.first + range.count) * numerics::kNormBlock);
  return {begin, end > begin ? end - begin : 0};
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
  const auto leaves = static_cast<std::uint64_t>(batch_.leaves());
  std::vector<double> losses;
  compute(leaf_range(leaves, group_.size(), group_.rank()), losses);
  const std::uint64_t local_bad = gradients_->first_bad();
  const absl::Status reduced = gradients_->reduce(group_, leaves);
  if (!reduced.ok()) return peer_failure(reduced);
  const auto all = agree_on_step(losses, local_bad);
  if (!all.ok()) return peer_failure(all.status());

  const double nominal = static_cast<double>(batch_.global * config_.model.n_ctx);
  const double scale = scaler_.scale();
  const double unscale = nominal / static_cast<double>(all->tokens) / scale;
  const double norm = norm_of_partials(all->norm_partials, unscale);
  const double lr = learning_rate(config_.schedule, counters_.updates);
  const ScalerOutcome outcome = scaler_.update(all->found_inf);
  if (outcome == ScalerOutcome::kStep) {
    apply(unscale * clip_factor(norm, config_.gradient_clipping), lr);
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

// Forward and backward of this rank's micro-batches. The loss is scaled by 1 / nominal tokens of
// the whole step, so that sums over ranks are means, and by the loss scale.
void TrainingRun::compute(LeafRange mine, std::vector<double>& losses) {
  const auto micro = static_cast<std::uint64_t>(batch_.micro);
  const double nominal = static_cast<double>(batch_.global * config_.model.n_ctx);
  const auto gradient_scale = static_cast<float>(scaler_.scale() / nominal);
  tokens_.resize(micro * static_cast<std::uint64_t>(dataset_->window_tokens()));
  gradients_->compute(mine, [&](std::uint64_t leaf, std::span<float> into) {
    const std::uint64_t first = counters_.samples + leaf * micro;
    dataset_->train_batch(first, micro, tokens_);
    losses.push_back(
        model_->forward_backward(tokens_, batch_.micro, config_.model.n_ctx, gradient_scale, into));
    if (runtime_.consumed) runtime_.consumed(first, micro);
    if (runtime_.after_backward) runtime_.after_backward(counters_.step + 1, into);
  });
}

absl::StatusOr<Control> TrainingRun::agree_on_step(const std::vector<double>& losses,
                                                   std::uint64_t local_bad) {
  const std::span<const float> sum = gradients_->sum();
  const BlockRange own = own_blocks(layout_.size, group_.size(), group_.rank());
  const std::span<const float> part = sum.subspan(own.offset, own.count);
  const std::uint64_t sum_bad = first_non_finite(layout_, own.offset, part);
  Control mine;
  mine.found_inf = local_bad != kAllFinite || sum_bad != kAllFinite;
  mine.first_bad =
      std::min(bad_key(local_bad, group_.rank(), false), bad_key(sum_bad, group_.rank(), true));
  mine.stop = overseer_.stop_requested();
  mine.tokens = losses.size() * static_cast<std::uint64_t>(batch_.micro * config_.model.n_ctx);
  for (const double loss : losses)
    mine.loss_sum += loss;
  mine.norm_partials = square_norm_partials(own.offset, part);
  mine.micro_losses = losses;
  mine.fingerprint = fingerprint();
  return control_all_reduce(group_, mine);
}

// What must be equal on all ranks before they step together. The parameters themselves are in it
// where a checkpoint is to be made of the result: no rank's silent error gets published.
std::uint64_t TrainingRun::fingerprint() const {
  const std::uint64_t facts[] = {layout_.hash,
                                 config_digest_,
                                 counters_.step,
                                 counters_.updates,
                                 counters_.samples,
                                 counters_.bad_steps,
                                 std::bit_cast<std::uint64_t>(scaler_.scale())};
  std::uint64_t print = digest64(std::as_bytes(std::span(facts)));
  if (checkpoint_due(counters_.step + 1)) {
    print ^= digest64(std::as_bytes(std::span(tensors_.master)));
  }
  return print;
}

void TrainingRun::apply(double gradient_factor, double lr) {
  AdamWOptions options = config_.adam;
  options.learning_rate = lr;
  ++counters_.updates;
  adamw_step(options, counters_.updates, gradient_factor, layout_, 0, gradients_->sum(),
             tensors_.master, tensors_.m, tensors_.v);
  model_->load_weights(tensors_.master);
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
