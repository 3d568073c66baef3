// SPDX-License-Identifier: Apache-2.0
//
// The configuration of a training run: one JSON document with DeepSpeed's key names where
// DeepSpeed has the key, so that a ds_config.json that uses them works. Unknown keys are refused;
// known keys without effect are named; what would silently change the result is refused.
//
// Thread rule: values; parsing is pure but for reading the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/model/gpt.h"
#include "worker_runtime/numerics/adamw.h"
#include "worker_runtime/numerics/scaler.h"
#include "worker_runtime/numerics/schedule.h"

namespace muster::runtime {

// fp16's keys mean DeepSpeed's scaler, grad_scaler's torch's; never both. kNone without fp16.
struct LossScaleConfig {
  enum class Kind : std::uint8_t { kNone, kDeepSpeed, kTorch };
  Kind kind = Kind::kNone;
  ScalerOptions deepspeed;
  double init_scale = 65536;  // kTorch, from here on
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  double min_scale = 1;  // an overflow at or below it ends the run
};

struct ParallelConfig {
  bool deterministic = false;       // the same bits at any world size
  std::string wire_dtype = "fp32";  // fp32, bf16, fp16
  std::string backend = "auto";     // auto, nccl, staged, tcp
  // MiB of gradient that leave a device together, and the first of them.
  double bucket_mb = 32;
  double first_bucket_mb = 4;
};

enum class DeviceChoice : std::uint8_t { kAuto, kCpu, kCuda };

struct CheckpointConfig {
  std::string dir;               // empty: none
  std::int64_t every_steps = 0;  // 0: only when stopped and at the end
  std::int64_t keep = 3;         // 0: all
  std::int64_t timeout_s = 600;
};

struct EvalConfig {
  std::int64_t every_steps = 0;  // 0: never
  std::int64_t batches = 0;      // micro-batches of validation windows; 0: all of them
};

// As written: what is missing follows from the world size that the run started with.
struct BatchKeys {
  std::optional<std::int64_t> global;
  std::optional<std::int64_t> micro;
  std::optional<std::int64_t> accumulation;
};

struct TrainConfig {
  GptConfig model;
  Precision precision = Precision::kF32;
  DeviceChoice device = DeviceChoice::kAuto;
  std::string data_path;
  double validation = 0.05;
  std::int64_t steps = 0;
  std::uint64_t seed = 1234;
  BatchKeys batch;
  double gradient_clipping = 1.0;        // 0: off
  std::int64_t max_bad_steps = 8;        // skipped in a row without a scaler; then exit 80
  AdamWOptions adam{.weight_decay = 0};  // DeepSpeed's default, which torch's is not
  Schedule schedule;
  LossScaleConfig loss_scale;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  EvalConfig eval;
};

struct ParsedConfig {
  TrainConfig config;
  std::vector<std::string> notes;  // for people: keys without effect
};

// Reads FILE, applies `settings` ("a.b=V": V is JSON, or else text) in order, checks everything.
// kInvalidArgument, one line, naming the file and the place or the JSON pointer; kNotFound.
absl::StatusOr<ParsedConfig> load_config(const std::string& file,
                                         const std::vector<std::string>& settings);
// The same from text; `name` stands for the file in messages.
absl::StatusOr<ParsedConfig> parse_config(const std::string& text, const std::string& name,
                                          const std::vector<std::string>& settings);

// Samples of a step, cut into micro-batches of equal size: the leaves of its reduction.
struct Batch {
  std::int64_t global = 0;  // samples a step
  std::int64_t micro = 0;   // samples a micro-batch
  std::int64_t leaves() const { return global / micro; }
  bool operator==(const Batch&) const = default;
};

// train_batch_size = micro * accumulation * world_size, as far as given; missing ones follow.
// `started` says whether this is the world size that the run started with: accumulation is only
// checked there. `stored` is what the checkpoint was made with: it fills in what the keys leave
// open, so that a changed world size does not change the batch. kInvalidArgument with the sum.
absl::StatusOr<Batch> resolve_batch(const BatchKeys& keys, std::int64_t world_size, bool started,
                                    std::optional<Batch> stored);

// The whole configuration with defaults and the resolved batch, as compact JSON.
std::string config_json(const TrainConfig& config, const Batch& batch);
// Of that text, what the numbers of a run depend on: a digest, and the pointers that differ.
std::uint64_t trajectory_digest(const std::string& config);
std::vector<std::string> trajectory_differences(const std::string& a, const std::string& b);
// The batch that stands in it. nullopt: it does not.
std::optional<Batch> batch_of(const std::string& config);

}  // namespace muster::runtime
