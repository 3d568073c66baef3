// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/training.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "worker_runtime/numerics/philox.h"
#include "worker_runtime/optim/optimizer.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

constexpr std::uint64_t kSeed = 1234;

// FNV-1a by words.
std::uint64_t mixed(std::uint64_t digest, std::span<const float> values) {
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * 0x100000001b3U;
  }
  return digest;
}

template <class T>
void put(std::ofstream& file, const T& value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <class T>
void take(std::ifstream& file, T& value) {
  file.read(reinterpret_cast<char*>(&value), sizeof(value));
}

}  // namespace

TrainingPlan small_plan(bool on_fakes, Precision precision) {
  if (on_fakes) {
    return {.model = {.n_layer = 1, .n_head = 1, .n_embd = 64, .n_ctx = 12, .vocab_size = 64},
            .precision = precision,
            .micro = 1,
            .leaves = 3,
            .bucket_mb = 0.07};
  }
  return {.model = {.n_layer = 2, .n_head = 2, .n_embd = 128, .n_ctx = 64, .vocab_size = 512},
          .precision = precision,
          .micro = 2,
          .leaves = 5,
          .bucket_mb = 0.25};
}

std::uint64_t digest(const TrainingState& state) {
  std::uint64_t all = 0xcbf29ce484222325U ^ state.step ^ (state.updates << 32U);
  for (const std::vector<float>* values :
       {&state.tensors.master, &state.tensors.m, &state.tensors.v}) {
    all = mixed(all, *values);
  }
  return all;
}

absl::Status save(const TrainingState& state, const std::string& path) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary);
  put(file, state.step);
  put(file, state.updates);
  put(file, state.scaler);
  put(file, std::uint64_t{state.tensors.master.size()});
  for (const std::vector<float>* values :
       {&state.tensors.master, &state.tensors.m, &state.tensors.v}) {
    file.write(reinterpret_cast<const char*>(values->data()),
               static_cast<std::streamsize>(values->size() * sizeof(float)));
  }
  file.close();
  if (!file.good() || std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::InternalError("cannot write " + path);
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingState> load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TrainingState state;
  std::uint64_t size = 0;
  take(file, state.step);
  take(file, state.updates);
  take(file, state.scaler);
  take(file, size);
  if (!file.good()) return absl::NotFoundError("no state in " + path);
  for (std::vector<float>* values : {&state.tensors.master, &state.tensors.m, &state.tensors.v}) {
    values->resize(size);
    file.read(reinterpret_cast<char*>(values->data()),
              static_cast<std::streamsize>(size * sizeof(float)));
  }
  if (!file.good()) return absl::DataLossError(path + " is cut");
  return state;
}

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return "bf16";
    case Precision::kF16: return "fp16";
    case Precision::kF32: break;
  }
  return "fp32";
}

Training::Training(const TrainingPlan& plan, Collectives& group)
    : plan_(plan), group_(group), layout_(flat_layout(plan.model)) {
  parallel_.bucket_mb = plan.bucket_mb;
  scaling_.initial_scale_power = plan.scale_power;
  scaling_.hysteresis = 1;
  if (plan.precision != Precision::kF16) scaling_.loss_scale = 1;
  scaler_ = numerics::scaler_start(scaling_);
}

absl::StatusOr<std::unique_ptr<Training>> Training::start(const TrainingPlan& plan,
                                                          const Opened& opened, Collectives& group,
                                                          const ExchangeMaker& exchange,
                                                          std::span<const float> master) {
  std::unique_ptr<Training> training(new Training(plan, group));
  const EngineRequest request{.model = training->plan_.model,
                              .precision = plan.precision,
                              .micro = plan.micro,
                              .layout = training->layout_,
                              .parallel = training->parallel_,
                              .group = group,
                              .after_backward = {}};
  auto engine = make_device_engine(request, opened.device, opened.blas, exchange);
  if (!engine.ok()) return engine.status();
  training->engine_ = *std::move(engine);
  TrainTensors tensors;
  const std::size_t size = training->layout_.size;
  tensors.master.resize(size);
  tensors.m.resize(size);
  tensors.v.resize(size);
  if (master.empty()) {
    initialise(plan.model, training->layout_, kSeed, tensors.master);
  } else {
    tensors.master.assign(master.begin(), master.end());
  }
  const absl::Status loaded = training->engine_->load(std::move(tensors));
  if (!loaded.ok()) return loaded;
  return training;
}

absl::Status Training::resume(TrainingState state) {
  step_ = state.step;
  updates_ = state.updates;
  scaler_ = state.scaler;
  return engine_->load(std::move(state.tensors));
}

absl::StatusOr<TrainingState> Training::state() {
  const auto tensors = engine_->tensors();
  if (!tensors.ok()) return tensors.status();
  return TrainingState{**tensors, step_, updates_, scaler_};
}

// A language that can be learned: three times of four the next token follows from the last.
std::span<const std::int32_t> Training::tokens(std::uint64_t leaf) {
  const auto window = static_cast<std::size_t>(plan_.model.n_ctx + 1);
  const auto vocabulary = static_cast<std::uint64_t>(plan_.model.vocab_size);
  tokens_.resize(static_cast<std::size_t>(plan_.micro) * window);
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const numerics::Philox bits = numerics::philox(kSeed, i, step_ * plan_.leaves + leaf + 1);
    const bool follows = i % window != 0 && bits.word[1] % 4 != 0;
    last = (follows ? last * 3 + 1 : bits.word[0]) % vocabulary;
    tokens_[i] = static_cast<std::int32_t>(last);
  }
  return tokens_;
}

double Training::gradient_scale() const {
  return scaler_.scale / static_cast<double>(plan_.tokens());
}

absl::StatusOr<GradientFacts> Training::gradient(std::vector<double>& losses) {
  return engine_->gradient(
      leaf_range(plan_.leaves, group_.size(), group_.rank()), plan_.leaves,
      [this](std::uint64_t leaf) { return tokens(leaf); }, static_cast<float>(gradient_scale()),
      losses);
}

absl::StatusOr<double> Training::forward() {
  return engine_->forward(tokens(0), plan_.micro);
}

absl::StatusOr<double> Training::step() {
  std::vector<double> losses;
  const auto facts = gradient(losses);
  if (!facts.ok()) return facts.status();
  Control mine;
  mine.found_inf = facts->own_bad != kAllFinite || facts->sum_bad != kAllFinite;
  mine.tokens = losses.size() * static_cast<std::uint64_t>(plan_.micro * plan_.model.n_ctx);
  mine.norm_partials = facts->norm_partials;
  mine.micro_losses = losses;
  mine.fingerprint = layout_.hash ^ step_ ^ engine_->fingerprint();
  const auto all = control_all_reduce(group_, mine);
  if (!all.ok()) return all.status();
  const double unscale = 1 / scaler_.scale;
  const double norm = norm_of_partials(all->norm_partials, unscale);
  if (numerics::scaler_update(scaling_, scaler_, all->found_inf) == ScalerOutcome::kStep) {
    const absl::Status applied =
        engine_->apply({.weight_decay = 0.1}, ++updates_, unscale * clip_factor(norm, 1.0));
    if (!applied.ok()) return applied;
  }
  ++step_;
  return all->loss_sum / static_cast<double>(all->tokens);
}

}  // namespace muster::runtime::cuda::gpu_check
