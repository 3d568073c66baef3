// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/config.h"

#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/training/scratch.h"

namespace muster::runtime {
namespace {

constexpr const char* kSmall = R"({
  "model": {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_ctx": 16, "vocab_size": 256},
  "data": {"path": "/corpus"}, "steps": 10,
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2})";

using Settings = std::vector<std::string>;

TrainConfig good(const Settings& settings = {}, const char* text = kSmall) {
  const auto parsed = parse_config(text, "c.json", settings);
  INFO(parsed.status());
  REQUIRE(parsed.ok());
  return parsed->config;
}

std::string refusal(const Settings& settings, const char* text = kSmall) {
  const auto parsed = parse_config(text, "c.json", settings);
  if (parsed.ok()) return "accepted";
  CHECK(absl::IsInvalidArgument(parsed.status()));
  const std::string message(parsed.status().message());
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

TEST_CASE("the configurations that come with the program read") {
  for (const char* name : {"gpt-tiny.json", "gpt-nano.json"}) {
    const std::string file = std::string(MUSTER_SOURCE_DIR) + "/configs/" + name;
    const auto parsed = load_config(file, {"checkpoint.dir=/tmp/x"});
    INFO(parsed.status());
    REQUIRE(parsed.ok());
    CHECK(parsed->notes.empty());
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      CHECK(resolve_batch(parsed->config.batch, ranks, true, std::nullopt).ok());
    }
  }
  const auto tiny = load_config(std::string(MUSTER_SOURCE_DIR) + "/configs/gpt-tiny.json",
                                {"checkpoint.dir=/tmp/x"});
  CHECK(tiny->config.steps >= 300);
  CHECK(*tiny->config.batch.global * tiny->config.model.n_ctx == 4096);
  CHECK(tiny->config.schedule.kind == Schedule::Kind::kWarmupCosineLr);
}

TEST_CASE("defaults are DeepSpeed's") {
  const TrainConfig config = good();
  CHECK(config.precision == Precision::kF32);
  CHECK(config.gradient_clipping == 1.0);
  CHECK(config.adam.weight_decay == 0);
  CHECK(config.validation == 0.05);
  CHECK(config.loss_scale.kind == LossScaleConfig::Kind::kNone);
  const TrainConfig half = good({"fp16.enabled=true"});
  CHECK(half.precision == Precision::kF16);
  CHECK(half.loss_scale.deepspeed.initial_scale_power == 16);
  CHECK(half.loss_scale.deepspeed.loss_scale_window == 1000);
  CHECK(half.loss_scale.deepspeed.hysteresis == 2);
}

TEST_CASE("settings override the file, in order, and make what is missing") {
  const TrainConfig config =
      good({"optimizer.params.lr=0.5", "optimizer.params.lr=0.25", "data.path=a b=c",
            "scheduler={\"type\":\"WarmupLR\",\"params\":{\"warmup_max_lr\":2}}", "steps=7",
            "checkpoint.timeout=2m"});
  CHECK(config.adam.learning_rate == 0.25);
  CHECK(config.schedule.base_rate == 0.25);
  CHECK(config.data_path == "a b=c");
  CHECK(config.schedule.warmup_max_lr == 2);
  CHECK(config.steps == 7);
  CHECK(config.checkpoint.timeout_s == 120);
  CHECK_THAT(refusal({"steps"}), Catch::Contains("--set steps: must be KEY=VALUE"));
  CHECK_THAT(refusal({"steps.x=1"}), Catch::Contains("is no object"));
  CHECK_THAT(refusal({"model..x=1"}), Catch::Contains("empty key"));
  CHECK_THAT(refusal({"data.path=\xff"}), Catch::Contains("not UTF-8"));
}

TEST_CASE("unknown keys are refused by pointer, with the nearest") {
  CHECK_THAT(refusal({"model.n_layers=3"}),
             Catch::Contains("c.json: /model/n_layers is not a key") &&
                 Catch::Contains("did you mean /model/n_layer?"));
  CHECK_THAT(refusal({"train_batch_sise=3"}), Catch::Contains("/train_batch_size?"));
  CHECK_THAT(refusal({"no.such=1"}), Catch::Contains("/no is not a key of this version"));
  CHECK_THAT(refusal({"optimizer.params.beta=1"}), Catch::Contains("/optimizer/params/betas?"));
  CHECK_THAT(refusal({"fp16.init_scale=1"}), Catch::Contains("/fp16/init_scale is not a key"));
}

TEST_CASE("types and ranges are checked by pointer") {
  CHECK_THAT(refusal({"steps=\"many\""}),
             Catch::Contains("/steps must be a whole number, not \"many\""));
  CHECK_THAT(refusal({"steps=1.5"}), Catch::Contains("/steps must be a whole number"));
  CHECK_THAT(refusal({"steps=0"}), Catch::Contains("/steps must be at least 1, not 0"));
  CHECK_THAT(refusal({"steps=99999999999999999999"}), Catch::Contains("/steps must be"));
  CHECK_THAT(refusal({"seed=18446744073709551615"}), Catch::Contains("/seed must be"));
  CHECK_THAT(refusal({"model=3"}), Catch::Contains("/model must be an object, not 3"));
  CHECK_THAT(refusal({"model.n_head=3"}),
             Catch::Contains("/model/n_embd (32) must be a multiple of /model/n_head (3)"));
  CHECK_THAT(refusal({"data.validation=1"}), Catch::Contains("/data/validation must be"));
  CHECK_THAT(refusal({"optimizer.params.betas=[0.9]"}), Catch::Contains("betas must be two"));
  CHECK_THAT(refusal({"optimizer.type=SGD"}),
             Catch::Contains("/optimizer/type must be one of AdamW, Adam, not \"SGD\""));
  CHECK_THAT(refusal({"bf16.enabled=1"}), Catch::Contains("/bf16/enabled must be true or false"));
  CHECK_THAT(refusal({"checkpoint.timeout=never"}), Catch::Contains("/checkpoint/timeout must be"));
  CHECK_THAT(refusal({"train_batch_size=auto"}), Catch::Contains("/train_batch_size must be"));
  CHECK(good({"train_batch_size=8e0"}).batch.global == 8);  // ds_configs write 5e8
}

TEST_CASE("what would silently change the result is refused") {
  CHECK_THAT(refusal({"fp16.enabled=true", "bf16.enabled=true"}),
             Catch::Contains("/fp16/enabled and /bf16/enabled exclude each other"));
  CHECK_THAT(refusal({"zero_optimization.stage=2"}),
             Catch::Contains("/zero_optimization/stage must be 0 in this version, not 2"));
  CHECK_THAT(refusal({"device=tpu"}), Catch::Contains("/device must be"));
  CHECK_THAT(refusal({"device=cpu", "parallel.backend=nccl"}),
             Catch::Contains("needs a CUDA device"));
  CHECK_THAT(refusal({"device=cuda", "parallel.backend=tcp"}), Catch::Contains("is the CPU's"));
  CHECK_THAT(refusal({"parallel.deterministic=true", "parallel.backend=nccl"}),
             Catch::Contains("adds on the host"));
  CHECK(good({"device=cuda", "parallel.backend=staged"}).device == DeviceChoice::kCuda);
  CHECK_THAT(refusal({"lora={\"rank\": 4}"}), Catch::Contains("/lora is not in this version"));
  CHECK_THAT(refusal({"amp.enabled=true"}), Catch::Contains("/amp is not in this version"));
  CHECK(good({"amp.enabled=false", "lora=null"}).steps == 10);
  CHECK_THAT(refusal({"parallel.deterministic=true", "parallel.wire_dtype=bf16"}),
             Catch::Contains("/parallel/wire_dtype must be fp32"));
  CHECK_THAT(refusal({"grad_scaler.init_scale=2"}), Catch::Contains("set /fp16/enabled"));
  CHECK_THAT(refusal({"fp16.enabled=true", "fp16.hysteresis=1", "grad_scaler.init_scale=2"}),
             Catch::Contains("/grad_scaler (torch's scaler) and /fp16/hysteresis"));
  CHECK_THAT(refusal({"checkpoint.every_steps=5"}),
             Catch::Contains("/checkpoint/dir is missing") && Catch::Contains("--set"));
  CHECK_THAT(refusal({"eval.every_steps=5", "data.validation=0"}),
             Catch::Contains("/eval/every_steps needs validation text"));
  CHECK_THAT(refusal({"scheduler.type=WarmupCosineLR", "scheduler.params.warmup_num_steps=11"}),
             Catch::Contains("must not be above total_num_steps (10)"));
}

TEST_CASE("what is missing is named") {
  CHECK_THAT(refusal({}, "{}"), Catch::Contains("/model is missing"));
  CHECK_THAT(refusal({"model.n_layer=1"}, "{}"), Catch::Contains("/data is missing"));
  CHECK_THAT(refusal({"model.n_layer=1", "data.path="}, "{}"),
             Catch::Contains("/data/path is missing"));
  CHECK_THAT(refusal({"model.n_layer=1", "data.path=x"}, "{}"),
             Catch::Contains("/steps is missing"));
}

TEST_CASE("a DeepSpeed configuration works; what has no effect is named once") {
  const auto parsed = parse_config(kSmall, "c.json",
                                   {"zero_optimization={\"stage\":0,\"reduce_bucket_size\":5e8,"
                                    "\"overlap_comm\":true}",
                                    "steps_per_print=10", "wall_clock_breakdown=false",
                                    "optimizer={\"type\":\"Adam\",\"params\":{\"lr\":0.001,"
                                    "\"betas\":[0.8,0.999],\"eps\":1e-8,\"weight_decay\":3e-7}}",
                                    "threads=4"});
  REQUIRE(parsed.ok());
  REQUIRE(parsed->notes.size() == 1);
  for (const char* pointer : {"/steps_per_print", "/zero_optimization/reduce_bucket_size",
                              "/zero_optimization/overlap_comm", "/threads"}) {
    CHECK_THAT(parsed->notes[0], Catch::Contains(pointer));
  }
  CHECK(parsed->config.adam.beta1 == 0.8);
}

TEST_CASE("what is no configuration is refused with the place") {
  CHECK_THAT(refusal({}, "{\"steps\": 1,\n  \"model\": }"),
             Catch::Contains("c.json:2:12: expected a value, not '}'"));
  CHECK_THAT(refusal({}, "[]"), Catch::Contains("must be a JSON object"));
  CHECK_THAT(refusal({}, ""), Catch::Contains("c.json:1:1: ends too early"));
  CHECK_THAT(refusal({}, R"({"steps": 1, "model": {"n_ctx": 1, "n_ctx": 2}})"),
             Catch::Contains("key \"n_ctx\" stands twice"));
  const test::Scratch dir;
  CHECK(absl::IsNotFound(load_config(dir / "none.json", {}).status()));
  CHECK_THAT(std::string(load_config(dir.path(), {}).status().message()),
             Catch::Contains("is a directory"));
}

std::string batch_refusal(const BatchKeys& keys, std::int64_t ranks, bool started = true) {
  const auto batch = resolve_batch(keys, ranks, started, std::nullopt);
  return batch.ok() ? "accepted" : std::string(batch.status().message());
}

TEST_CASE("the batch is micro times accumulation times ranks, as far as given") {
  CHECK(resolve_batch({8, 2, {}}, 3, true, {}).value() == Batch{8, 2});
  CHECK(resolve_batch({8, 2, 2}, 2, true, {}).value() == Batch{8, 2});
  CHECK(resolve_batch({8, {}, {}}, 2, true, {}).value() == Batch{8, 4});
  CHECK(resolve_batch({8, {}, 2}, 2, true, {}).value() == Batch{8, 2});
  CHECK(resolve_batch({{}, 2, 3}, 2, true, {}).value() == Batch{12, 2});
  CHECK_THAT(batch_refusal({8, 2, 3}, 2), Catch::Contains("2 x 3 x 2 = 12"));
  CHECK_THAT(batch_refusal({8, 3, {}}, 1), Catch::Contains("is not a multiple of"));
  CHECK_THAT(batch_refusal({8, {}, {}}, 3), Catch::Contains("does not divide by 3 ranks"));
  CHECK_THAT(batch_refusal({{}, {}, 4}, 1), Catch::Contains("/train_batch_size is missing"));
}

TEST_CASE("a changed world size leaves the batch as it was") {
  CHECK(resolve_batch({8, 2, 2}, 1, false, Batch{8, 2}).value() == Batch{8, 2});
  CHECK(resolve_batch({8, {}, {}}, 4, false, Batch{8, 4}).value() == Batch{8, 4});
  CHECK(resolve_batch({{}, 2, 3}, 1, false, Batch{12, 2}).value() == Batch{12, 2});
  // What is written and differs wins over what was stored.
  CHECK(resolve_batch({16, 2, {}}, 4, false, Batch{8, 4}).value() == Batch{16, 2});
}

TEST_CASE("only what changes the numbers counts as another trajectory") {
  const Batch batch{8, 2};
  const std::string base = config_json(good(), batch);
  const auto other = [&](const Settings& settings) { return config_json(good(settings), batch); };
  CHECK(trajectory_digest(base) == trajectory_digest(other({"data.path=/elsewhere"})));
  CHECK(trajectory_digest(base) == trajectory_digest(other({"checkpoint.dir=/x"})));
  CHECK(trajectory_digest(base) != trajectory_digest(other({"seed=5"})));
  CHECK(trajectory_differences(base, other({"seed=5", "optimizer.params.lr=1"})) ==
        std::vector<std::string>{"/optimizer/lr", "/seed"});
  CHECK(batch_of(base) == batch);
  CHECK_FALSE(batch_of("{}").has_value());
  CHECK_FALSE(batch_of("x").has_value());
}

}  // namespace
}  // namespace muster::runtime
