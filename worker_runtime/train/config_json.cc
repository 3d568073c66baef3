// SPDX-License-Identifier: Apache-2.0
//
// The configuration as it is kept in checkpoints, and what follows from comparing two.
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "proto/base/check.h"
#include "worker_runtime/data/digest.h"
#include "worker_runtime/train/config.h"

namespace muster::runtime {
namespace {

using nlohmann::json;

constexpr const char* kPrecisions[] = {"fp32", "bf16", "fp16"};
constexpr const char* kSchedules[] = {"constant", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};

template <class E>
std::size_t index_of(E value) {
  return static_cast<std::size_t>(value);
}

json schedule_json(const Schedule& s) {
  return {{"type", kSchedules[index_of(s.kind)]},
          {"warmup_type", s.warmup_type == Schedule::Warmup::kLinear ? "linear" : "log"},
          {"warmup_num_steps", s.warmup_num_steps},
          {"total_num_steps", s.total_num_steps},
          {"warmup_min_lr", s.warmup_min_lr},
          {"warmup_max_lr", s.warmup_max_lr},
          {"warmup_min_ratio", s.warmup_min_ratio},
          {"cos_min_ratio", s.cos_min_ratio}};
}

json scaler_json(const LossScaleConfig& s) {
  if (s.kind == LossScaleConfig::Kind::kTorch) {
    return {{"type", "torch"},
            {"init_scale", s.init_scale},
            {"growth_factor", s.growth_factor},
            {"backoff_factor", s.backoff_factor},
            {"growth_interval", s.growth_interval},
            {"min_scale", s.min_scale}};
  }
  if (s.kind == LossScaleConfig::Kind::kNone) return {{"type", "none"}};
  return {{"type", "deepspeed"},
          {"loss_scale", s.deepspeed.loss_scale},
          {"initial_scale_power", s.deepspeed.initial_scale_power},
          {"loss_scale_window", s.deepspeed.loss_scale_window},
          {"hysteresis", s.deepspeed.hysteresis},
          {"consecutive_hysteresis", s.deepspeed.consecutive_hysteresis},
          {"min_loss_scale", s.deepspeed.min_loss_scale}};
}

// The keys that change what is computed. Where it is read from and when it is saved do not.
json trajectory(const std::string& config) {
  json document = json::parse(config, nullptr, false);
  MUSTER_CHECK(document.is_object());
  for (const char* key : {"checkpoint", "eval"})
    document.erase(key);
  if (document.contains("data")) document["data"].erase("path");
  return document;
}

}  // namespace

std::string config_json(const TrainConfig& config, const Batch& batch) {
  const json document = {
      {"model",
       {{"n_layer", config.model.n_layer},
        {"n_head", config.model.n_head},
        {"n_embd", config.model.n_embd},
        {"n_ctx", config.model.n_ctx},
        {"vocab_size", config.model.vocab_size}}},
      {"precision", kPrecisions[index_of(config.precision)]},
      {"data", {{"path", config.data_path}, {"validation", config.validation}}},
      {"steps", config.steps},
      {"seed", config.seed},
      {"train_batch_size", batch.global},
      {"train_micro_batch_size_per_gpu", batch.micro},
      {"gradient_clipping", config.gradient_clipping},
      {"max_bad_steps", config.max_bad_steps},
      {"optimizer",
       {{"lr", config.adam.learning_rate},
        {"betas", {config.adam.beta1, config.adam.beta2}},
        {"eps", config.adam.epsilon},
        {"weight_decay", config.adam.weight_decay}}},
      {"scheduler", schedule_json(config.schedule)},
      {"loss_scale", scaler_json(config.loss_scale)},
      {"parallel",
       {{"deterministic", config.parallel.deterministic},
        {"wire_dtype", config.parallel.wire_dtype}}},
      {"checkpoint",
       {{"dir", config.checkpoint.dir},
        {"every_steps", config.checkpoint.every_steps},
        {"keep", config.checkpoint.keep}}},
      {"eval", {{"every_steps", config.eval.every_steps}, {"batches", config.eval.batches}}}};
  return document.dump();
}

std::uint64_t trajectory_digest(const std::string& config) {
  return digest64(trajectory(config).dump());
}

std::vector<std::string> trajectory_differences(const std::string& a, const std::string& b) {
  const json left = trajectory(a).flatten();
  const json right = trajectory(b).flatten();
  std::set<std::string> pointers;
  for (const auto& [pointer, value] : left.items()) {
    if (!right.contains(pointer) || right[pointer] != value) pointers.insert(pointer);
  }
  for (const auto& [pointer, value] : right.items()) {
    if (!left.contains(pointer)) pointers.insert(pointer);
  }
  return {pointers.begin(), pointers.end()};
}

std::optional<Batch> batch_of(const std::string& config) {
  const json document = json::parse(config, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  const json global = document.value("train_batch_size", json());
  const json micro = document.value("train_micro_batch_size_per_gpu", json());
  if (!global.is_number_integer() || !micro.is_number_integer()) return std::nullopt;
  const Batch batch{global.get<std::int64_t>(), micro.get<std::int64_t>()};
  const bool sane = batch.global >= 1 && batch.micro >= 1 && batch.global % batch.micro == 0;
  return sane ? std::optional(batch) : std::nullopt;
}

absl::StatusOr<Batch> resolve_batch(const BatchKeys& keys, std::int64_t world_size, bool started,
                                    std::optional<Batch> stored) {
  MUSTER_CHECK(world_size >= 1);
  const std::int64_t accumulation = keys.accumulation.value_or(1);
  Batch batch;
  if (!keys.global && !keys.micro && !stored) {
    return absl::InvalidArgumentError(
        "/train_batch_size is missing: samples a step over all ranks");
  }
  if (keys.global && keys.micro) {
    batch = {*keys.global, *keys.micro};
  } else if (stored && (!keys.global || *keys.global == stored->global) &&
             (!keys.micro || *keys.micro == stored->micro)) {
    batch = *stored;
  } else if (keys.global) {
    const std::int64_t parts = world_size * accumulation;
    if (*keys.global % parts != 0) {
      return absl::InvalidArgumentError("/train_batch_size " + std::to_string(*keys.global) +
                                        " does not divide by " + std::to_string(world_size) +
                                        " ranks times " + std::to_string(accumulation) +
                                        " accumulation steps; set /train_micro_batch_size_per_gpu");
    }
    batch = {*keys.global, *keys.global / parts};
  } else {
    batch = {*keys.micro * accumulation * world_size, *keys.micro};
  }
  if (batch.global % batch.micro != 0) {
    return absl::InvalidArgumentError("/train_batch_size " + std::to_string(batch.global) +
                                      " is not a multiple of /train_micro_batch_size_per_gpu " +
                                      std::to_string(batch.micro));
  }
  if (started && keys.accumulation && batch.micro * accumulation * world_size != batch.global) {
    return absl::InvalidArgumentError(
        "/train_batch_size " + std::to_string(batch.global) +
        " must be micro batch times accumulation times ranks: " + std::to_string(batch.micro) +
        " x " + std::to_string(accumulation) + " x " + std::to_string(world_size) + " = " +
        std::to_string(batch.micro * accumulation * world_size));
  }
  return batch;
}

}  // namespace muster::runtime
