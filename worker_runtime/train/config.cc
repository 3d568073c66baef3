// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/config.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "proto/base/time.h"
#include "worker_runtime/train/config_document.h"
#include "worker_runtime/train/json_reader.h"

namespace muster::runtime {
namespace {

using nlohmann::json;

void read_model(JsonReader& root, GptConfig& model) {
  if (!root.has("model"))
    root.fail("model", "is missing: n_layer, n_head, n_embd, n_ctx, vocab_size");
  JsonReader reader = root.object("model");
  reader.integer("n_layer", model.n_layer, 1, 1000);
  reader.integer("n_head", model.n_head, 1, 1 << 16);
  reader.integer("n_embd", model.n_embd, 1, 1 << 16);
  reader.integer("n_ctx", model.n_ctx, 1, 1 << 20);
  reader.integer("vocab_size", model.vocab_size, 1, 1 << 24);
  if (model.n_embd % model.n_head != 0) {
    reader.fail("n_embd", "(" + std::to_string(model.n_embd) + ") must be a multiple of " +
                              reader.pointer("n_head") + " (" + std::to_string(model.n_head) + ")");
  }
  reader.finish();
}

void read_data(JsonReader& root, TrainConfig& config) {
  if (!root.has("data")) root.fail("data", "is missing: the path of a text file or directory");
  JsonReader reader = root.object("data");
  reader.text("path", config.data_path);
  reader.number("validation", config.validation, 0, 0.9);
  if (config.data_path.empty()) reader.fail("path", "is missing: a text file or directory");
  reader.finish();
}

void read_precision(JsonReader& root, TrainConfig& config) {
  bool fp16 = false;
  bool bf16 = false;
  ScalerOptions& scale = config.loss_scale.deepspeed;
  JsonReader half = root.object("fp16");
  half.boolean("enabled", fp16);
  std::int64_t power = scale.initial_scale_power;
  half.number("loss_scale", scale.loss_scale, 0, 0x1p40);
  half.integer("initial_scale_power", power, 0, 40);
  scale.initial_scale_power = static_cast<int>(power);
  half.integer("loss_scale_window", scale.loss_scale_window, 1);
  half.integer("hysteresis", scale.hysteresis, 1);
  half.boolean("consecutive_hysteresis", scale.consecutive_hysteresis);
  half.number("min_loss_scale", scale.min_loss_scale, 0x1p-24, 0x1p40);
  half.without_effect({"auto_cast"});
  half.must_be_off("fp16_master_weights_and_grads", "must be off: master weights are FP32");
  half.finish();
  JsonReader brain = root.object("bf16");
  brain.boolean("enabled", bf16);
  brain.without_effect({"immediate_grad_update", "check_grad_overflow"});
  brain.must_be_off("bf16_master_weights_and_grads", "must be off: master weights are FP32");
  brain.must_be_off("bf16_optimizer_states", "must be off: moments are FP32");
  brain.finish();
  if (fp16 && bf16) {
    root.fail("fp16/enabled", "and /bf16/enabled exclude each other: at most one may be true");
  }
  config.precision = fp16 ? Precision::kF16 : bf16 ? Precision::kBf16 : Precision::kF32;
  if (fp16) config.loss_scale.kind = LossScaleConfig::Kind::kDeepSpeed;
}

// torch.amp.GradScaler's names. What DeepSpeed's keys say of the same thing must not be there.
void read_grad_scaler(JsonReader& root, TrainConfig& config) {
  if (!root.has("grad_scaler")) return;
  JsonReader reader = root.object("grad_scaler");
  bool enabled = true;
  LossScaleConfig torch;
  torch.kind = LossScaleConfig::Kind::kTorch;
  reader.boolean("enabled", enabled);
  reader.number("init_scale", torch.init_scale, 0x1p-24, 0x1p40);
  reader.number("growth_factor", torch.growth_factor, 1, 1024);
  reader.number("backoff_factor", torch.backoff_factor, 0x1p-24, 1);
  reader.integer("growth_interval", torch.growth_interval, 1);
  reader.number("min_scale", torch.min_scale, 0x1p-24, 0x1p40);
  reader.finish();
  if (!enabled) return;
  JsonReader half = root.object("fp16");
  for (const char* key : {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
                          "consecutive_hysteresis", "min_loss_scale"}) {
    if (half.has(key)) {
      root.fail("grad_scaler",
                "(torch's scaler) and " + half.pointer(key) + " (DeepSpeed's) exclude each other");
    }
  }
  if (config.precision != Precision::kF16) {
    root.fail("grad_scaler", "scales the loss of fp16; set /fp16/enabled");
  }
  config.loss_scale = torch;
}

void read_optimizer(JsonReader& root, AdamWOptions& adam) {
  JsonReader reader = root.object("optimizer");
  std::string type = "AdamW";
  reader.choice("type", type, {"AdamW", "Adam"});
  JsonReader params = reader.object("params");
  params.number("lr", adam.learning_rate, 0, 1e3);
  params.number("eps", adam.epsilon, 0, 1);
  params.number("weight_decay", adam.weight_decay, 0, 1e3);
  if (const json* betas = params.value("betas"); betas != nullptr) {
    const bool two = betas->is_array() && betas->size() == 2 && (*betas)[0].is_number() &&
                     (*betas)[1].is_number();
    adam.beta1 = two ? (*betas)[0].get<double>() : -1;
    adam.beta2 = two ? (*betas)[1].get<double>() : -1;
    if (!(adam.beta1 >= 0 && adam.beta1 < 1 && adam.beta2 >= 0 && adam.beta2 < 1)) {
      params.fail("betas", "must be two numbers in [0, 1)");
    }
  }
  bool decoupled = true;
  bool corrected = true;
  params.boolean("adam_w_mode", decoupled);
  params.boolean("bias_correction", corrected);
  params.without_effect({"torch_adam", "fused"});
  params.must_be_off("amsgrad", "must be off: this version has AdamW only");
  if (!decoupled) params.fail("adam_w_mode", "must be true: weight decay is decoupled");
  if (!corrected) params.fail("bias_correction", "must be true");
  params.finish();
  reader.without_effect({"legacy_fusion"});
  reader.finish();
}

void read_scheduler(JsonReader& root, TrainConfig& config) {
  if (const json* found = root.value("scheduler"); found == nullptr || found->is_null()) return;
  using Kind = Schedule::Kind;
  Schedule& schedule = config.schedule;
  JsonReader reader = root.object("scheduler");
  std::string type;
  reader.choice("type", type, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  if (type.empty()) reader.fail("type", "is missing: WarmupLR, WarmupDecayLR or WarmupCosineLR");
  schedule.kind = type == "WarmupLR"        ? Kind::kWarmupLr
                  : type == "WarmupDecayLR" ? Kind::kWarmupDecayLr
                                            : Kind::kWarmupCosineLr;
  JsonReader params = reader.object("params");
  params.integer("warmup_num_steps", schedule.warmup_num_steps, 0);
  std::string warmup = "log";
  params.choice("warmup_type", warmup, {"log", "linear"});
  schedule.warmup_type = warmup == "linear" ? Schedule::Warmup::kLinear : Schedule::Warmup::kLog;
  if (schedule.kind != Kind::kWarmupLr) {
    schedule.total_num_steps = config.steps;
    params.integer("total_num_steps", schedule.total_num_steps, 1);
  }
  if (schedule.kind == Kind::kWarmupCosineLr) {
    params.number("warmup_min_ratio", schedule.warmup_min_ratio, 0, 1);
    params.number("cos_min_ratio", schedule.cos_min_ratio, 0, 1);
  } else {
    params.number("warmup_min_lr", schedule.warmup_min_lr, 0, 1e3);
    params.number("warmup_max_lr", schedule.warmup_max_lr, 0, 1e3);
  }
  if (schedule.total_num_steps != 0 && schedule.warmup_num_steps > schedule.total_num_steps) {
    params.fail("warmup_num_steps", "(" + std::to_string(schedule.warmup_num_steps) +
                                        ") must not be above total_num_steps (" +
                                        std::to_string(schedule.total_num_steps) + ")");
  }
  params.without_effect({"last_batch_iteration"});
  params.finish();
  reader.finish();
}

void read_zero(JsonReader& root) {
  JsonReader reader = root.object("zero_optimization");
  std::int64_t stage = 0;
  reader.integer("stage", stage, 0, 3);
  if (stage != 0) {
    reader.fail("stage", "must be 0 in this version, not " + std::to_string(stage) +
                             ": every rank holds the whole optimizer state");
  }
  reader.without_effect({"allgather_partitions",
                         "allgather_bucket_size",
                         "overlap_comm",
                         "reduce_scatter",
                         "reduce_bucket_size",
                         "contiguous_gradients",
                         "round_robin_gradients",
                         "use_multi_rank_bucket_allreduce",
                         "load_from_fp32_weights",
                         "ignore_unused_parameters",
                         "elastic_checkpoint",
                         "sub_group_size",
                         "stage3_max_live_parameters",
                         "stage3_max_reuse_distance",
                         "stage3_prefetch_bucket_size",
                         "stage3_param_persistence_threshold",
                         "stage3_model_persistence_threshold",
                         "stage3_gather_16bit_weights_on_model_save",
                         "cpu_offload",
                         "offload_param",
                         "offload_optimizer",
                         "legacy_stage1",
                         "zero_hpz_partition_size",
                         "zero_quantized_weights",
                         "zero_quantized_gradients",
                         "memory_efficient_linear"});
  reader.finish();
}

void read_parallel(JsonReader& root, ParallelConfig& parallel) {
  JsonReader reader = root.object("parallel");
  reader.boolean("deterministic", parallel.deterministic);
  reader.choice("wire_dtype", parallel.wire_dtype, {"fp32", "bf16", "fp16"});
  reader.choice("backend", parallel.backend, {"auto", "nccl", "staged", "tcp"});
  reader.number("bucket_mb", parallel.bucket_mb, 0.001, 4096);
  reader.number("first_bucket_mb", parallel.first_bucket_mb, 0.001, 4096);
  if (parallel.deterministic && parallel.wire_dtype != "fp32") {
    reader.fail("wire_dtype",
                "must be fp32 with /parallel/deterministic: rounding on the wire "
                "would depend on the world size");
  }
  reader.finish();
}

void read_timeout(JsonReader& reader, std::int64_t& seconds) {
  const json* found = reader.value("timeout");
  if (found == nullptr) return;
  const std::string text = found->is_string() ? found->get<std::string>() : found->dump();
  const std::optional<Duration> duration = parse_duration(text);
  if (!duration || *duration < 1s) {
    reader.fail("timeout", "must be a duration of a second or more (600, \"10m\"), not " + text);
    return;
  }
  seconds = std::chrono::duration_cast<std::chrono::seconds>(*duration).count();
}

void read_checkpoint(JsonReader& root, CheckpointConfig& checkpoint) {
  JsonReader reader = root.object("checkpoint");
  reader.text("dir", checkpoint.dir);
  reader.integer("every_steps", checkpoint.every_steps, 0);
  reader.integer("keep", checkpoint.keep, 0);
  read_timeout(reader, checkpoint.timeout_s);
  bool async = false;
  reader.boolean("async", async);
  if (async) reader.without_effect({"async"});
  reader.without_effect(
      {"tag_validation", "load_universal", "use_node_local_storage", "parallel_write"});
  if (checkpoint.every_steps > 0 && checkpoint.dir.empty()) {
    reader.fail("dir", "is missing: /checkpoint/every_steps is " +
                           std::to_string(checkpoint.every_steps) +
                           "; give one with --set checkpoint.dir=DIR");
  }
  reader.finish();
}

void read_eval(JsonReader& root, TrainConfig& config) {
  JsonReader reader = root.object("eval");
  reader.integer("every_steps", config.eval.every_steps, 0);
  reader.integer("batches", config.eval.batches, 0);
  if (config.eval.every_steps > 0 && config.validation == 0) {
    reader.fail("every_steps", "needs validation text: /data/validation is 0");
  }
  reader.finish();
}

void read_count(JsonReader& root, const char* key, std::optional<std::int64_t>& out) {
  std::int64_t value = 0;
  root.integer(key, value, 1, std::int64_t{1} << 24);
  if (root.has(key)) out = value;
}

// Which collectives go with it: the CPU has tcp, a device all but that.
void read_device(JsonReader& root, TrainConfig& config) {
  std::string device = "auto";
  root.choice("device", device, {"auto", "cpu", "cuda"});
  config.device = device == "cpu"    ? DeviceChoice::kCpu
                  : device == "cuda" ? DeviceChoice::kCuda
                                     : DeviceChoice::kAuto;
  const std::string& backend = config.parallel.backend;
  const bool on_device = backend == "nccl" || backend == "staged";
  if (config.device == DeviceChoice::kCpu && on_device) {
    root.fail("parallel/backend", "\"" + backend + "\" needs a CUDA device, and /device is cpu");
  }
  if (config.device == DeviceChoice::kCuda && backend == "tcp") {
    root.fail("parallel/backend",
              "\"tcp\" is the CPU's, and /device is cuda: staged goes over it from a device");
  }
  if (config.parallel.deterministic && backend == "nccl") {
    root.fail("parallel/backend",
              "\"nccl\" adds on the devices, in an order of its own: /parallel/deterministic "
              "adds on the host; leave it at auto");
  }
  std::int64_t threads = 1;
  root.integer("threads", threads, 1, 4096);
  if (threads != 1) root.without_effect({"threads"});
}

// DeepSpeed's other top-level keys.
void read_the_rest(JsonReader& root) {
  root.without_effect({"steps_per_print",
                       "wall_clock_breakdown",
                       "dump_state",
                       "memory_breakdown",
                       "prescale_gradients",
                       "gradient_predivide_factor",
                       "communication_data_type",
                       "seq_parallel_communication_data_type",
                       "sparse_gradients",
                       "disable_allgather",
                       "zero_allow_untested_optimizer",
                       "zero_force_ds_cpu_optimizer",
                       "flops_profiler",
                       "tensorboard",
                       "wandb",
                       "comet",
                       "csv_monitor",
                       "comms_logger",
                       "activation_checkpointing",
                       "aio",
                       "data_types",
                       "timers",
                       "nebula",
                       "pipeline"});
  constexpr std::string_view kNotHere = "is not in this version; remove it or switch it off";
  for (const char* key :
       {"amp", "lora", "elasticity", "autotuning", "curriculum_learning", "data_efficiency",
        "progressive_layer_drop", "compression_training", "eigenvalue", "quantize_training",
        "sparse_attention", "tensor_parallel"}) {
    root.must_be_off(key, kNotHere);
  }
}

void read_seed(JsonReader& root, std::uint64_t& seed) {
  std::int64_t value = static_cast<std::int64_t>(seed);
  root.integer("seed", value, 0);
  seed = static_cast<std::uint64_t>(value);
}

TrainConfig read_config(JsonReader& root) {
  TrainConfig config;
  read_model(root, config.model);
  read_data(root, config);
  root.integer("steps", config.steps, 1);
  if (!root.has("steps")) root.fail("steps", "is missing: how many steps to train");
  read_seed(root, config.seed);
  read_count(root, "train_batch_size", config.batch.global);
  read_count(root, "train_micro_batch_size_per_gpu", config.batch.micro);
  read_count(root, "gradient_accumulation_steps", config.batch.accumulation);
  root.number("gradient_clipping", config.gradient_clipping, 0, 1e30);
  root.integer("max_bad_steps", config.max_bad_steps, 1);
  read_precision(root, config);
  read_grad_scaler(root, config);
  read_optimizer(root, config.adam);
  config.schedule.base_rate = config.adam.learning_rate;
  read_scheduler(root, config);
  read_zero(root);
  read_parallel(root, config.parallel);
  read_checkpoint(root, config.checkpoint);
  read_eval(root, config);
  read_device(root, config);
  read_the_rest(root);
  root.finish();
  return config;
}

}  // namespace

absl::StatusOr<ParsedConfig> parse_config(const std::string& text, const std::string& name,
                                          const std::vector<std::string>& settings) {
  const absl::StatusOr<json> document = config_document(text, name, settings);
  if (!document.ok()) return document.status();
  JsonReader::Findings findings;
  JsonReader root(*document, "", findings);
  ParsedConfig parsed;
  parsed.config = read_config(root);
  if (!findings.error.ok()) {
    return absl::InvalidArgumentError(name + ": " + std::string(findings.error.message()));
  }
  if (!findings.ignored.empty()) {
    std::string list;
    for (const std::string& pointer : findings.ignored)
      list += (list.empty() ? "" : ", ") + pointer;
    parsed.notes.push_back(name + ": without effect in this version: " + list);
  }
  return parsed;
}

absl::StatusOr<ParsedConfig> load_config(const std::string& file,
                                         const std::vector<std::string>& settings) {
  const absl::StatusOr<std::string> text = read_document(file);
  if (!text.ok()) return text.status();
  return parse_config(*text, file, settings);
}

}  // namespace muster::runtime
