// SPDX-License-Identifier: Apache-2.0
//
// Whole runs that go wrong: overflow, NaN, storage, foreign checkpoints.
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/training/faulty_file_system.h"
#include "tests/unit/training/training_runs.h"

namespace muster::runtime {
namespace {

namespace fs = std::filesystem;
using test::Bench;
using test::FaultyFileSystem;
using test::Run;
using test::RunOptions;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One rank's gradient gets an infinity in the given steps.
RunOptions overflow_at(int ranks, int bad_rank, std::vector<std::uint64_t> steps) {
  RunOptions options;
  options.ranks = ranks;
  options.adjust = [bad_rank, steps](int rank, TrainRuntime& runtime, LocalGroup&) {
    if (rank != bad_rank) return;
    runtime.after_backward = [steps](std::uint64_t step, std::span<float> gradient) {
      if (std::find(steps.begin(), steps.end(), step) != steps.end()) gradient[0] = kInfinity;
    };
  };
  return options;
}

TEST_CASE("one rank's overflow is skipped by all, with the same scale everywhere") {
  for (const char* mode : {"parallel.deterministic=false", "parallel.deterministic=true"}) {
    const Bench bench;
    const Run run = bench.train(bench.config({"fp16.enabled=true", mode, "fp16.hysteresis=1"}),
                                overflow_at(3, 1, {2, 5}));
    for (const TrainResult& result : run.results) {
      INFO(result.message);
      REQUIRE(result.exit_code == kExitDone);
      CHECK(result.counters == run.first().counters);
      CHECK(result.param_hash == run.first().param_hash);
    }
    CHECK(run.first().counters.step == 12);
    CHECK(run.first().counters.updates == 10);
    CHECK(run.first().counters.samples == 144);  // skipped steps consume theirs
    CHECK(run.first().counters.scaler.scale == 65536 / 4);
    CHECK(run.lines[1]["skipped"] == true);
    CHECK(run.lines[1]["grad_norm"].is_null());
    CHECK(run.lines[2]["skipped"] == false);
    CHECK(run.lines[2]["loss_scale"] == 32768);
    // The rate follows applied updates: the step after the skipped one has the skipped one's.
    CHECK(run.lines[2]["lr"] == run.lines[1]["lr"]);
  }
}

TEST_CASE("an overflow at the lowest scale ends with 80, names the tensor, keeps the save") {
  const Bench bench;
  std::vector<std::uint64_t> always;
  for (std::uint64_t step = 5; step < 60; ++step)
    always.push_back(step);
  const Run run =
      bench.train(bench.config({"fp16.enabled=true", "fp16.initial_scale_power=3", "steps=60"}),
                  overflow_at(2, 1, always));
  for (const TrainResult& result : run.results) {
    CHECK(result.exit_code == kExitNumerics);
    CHECK_THAT(result.message, Catch::Contains("lowest loss scale") && Catch::Contains("ln_f") &&
                                   Catch::Contains("at rank 1"));
  }
  CHECK(fs::exists(bench.checkpoints() + "/step-4/manifest.json"));
}

TEST_CASE("gradients that overflow only in the sum over ranks are found in the sum") {
  const Bench bench;
  RunOptions options;
  options.ranks = 2;
  options.adjust = [](int, TrainRuntime& runtime, LocalGroup&) {
    // Three micro-batches a rank: one of them large on each.
    auto calls = std::make_shared<int>(0);
    runtime.after_backward = [calls](std::uint64_t, std::span<float> gradient) {
      if ((*calls)++ % 3 == 2) gradient[0] = 3e38F;
    };
  };
  const Run run = bench.train(bench.config({"max_bad_steps=2"}), options);
  for (const TrainResult& result : run.results) {
    CHECK(result.exit_code == kExitNumerics);
    CHECK_THAT(result.message, Catch::Contains("first in the sum over ranks of the gradient of"));
  }
}

TEST_CASE("without a scaler, bad steps are skipped and too many in a row end with 80") {
  const Bench few;
  const Run survived = few.train(few.config({"bf16.enabled=true", "max_bad_steps=3"}),
                                 overflow_at(2, 0, {2, 3, 5, 6}));
  CHECK(survived.first().exit_code == kExitDone);
  CHECK(survived.first().counters.updates == 8);
  CHECK(survived.first().counters.scaler.scale == 1);
  const Bench many;
  const Run ended =
      many.train(many.config({"max_bad_steps=3"}), overflow_at(2, 0, {2, 3, 5, 6, 7}));
  for (const TrainResult& result : ended.results) {
    CHECK(result.exit_code == kExitNumerics);
    CHECK_THAT(result.message, Catch::Contains("step 7: 3 steps in a row"));
  }
}

TEST_CASE("skipped steps and the scaler survive a restart") {
  const std::vector<std::string> settings = {"fp16.enabled=true", "fp16.loss_scale_window=3",
                                             "fp16.hysteresis=2"};
  const Bench calm;
  const Run whole = calm.train(calm.config(settings), overflow_at(1, 0, {3, 7}));
  const Bench bench;
  std::vector<std::string> half = settings;
  half.emplace_back("steps=5");
  // Not a checkpoint step: the stop, not the interval, has to carry the state over.
  REQUIRE(bench.train(bench.config(half), overflow_at(1, 0, {3, 7})).first().exit_code == 0);
  const Run rest = bench.train(bench.config(settings), overflow_at(1, 0, {3, 7}));
  CHECK(rest.first().counters == whole.first().counters);
  CHECK(rest.first().param_hash == whole.first().param_hash);
}

TEST_CASE("clipping bounds the step and tells the norm before it") {
  const Bench bench;
  const Run free = bench.train(bench.config({"gradient_clipping=0", "steps=3"}));
  const Bench other;
  const Run clipped = other.train(other.config({"gradient_clipping=0.001", "steps=3"}));
  CHECK(free.lines[0]["grad_norm"] == clipped.lines[0]["grad_norm"]);
  CHECK(free.lines[0]["grad_norm"].get<double>() > 0.1);
  CHECK(free.first().param_hash != clipped.first().param_hash);
}

TEST_CASE("storage that fails ends rank 0 with 84 and the others with 81") {
  const Bench bench;
  FaultyFileSystem files([](int, const std::string& words) {
    return words.find("step-8") != std::string::npos && words.starts_with("write")
               ? absl::ResourceExhaustedError("no space left on device: " + words)
               : absl::OkStatus();
  });
  RunOptions options;
  options.ranks = 2;
  options.adjust = [&files](int rank, TrainRuntime& runtime, LocalGroup&) {
    if (rank == 0) runtime.files = &files;
  };
  const Run run = bench.train(bench.config(), options);
  CHECK(run.results[0].exit_code == kExitStorage);
  CHECK_THAT(run.results[0].message,
             Catch::Contains("cannot save step 8") && Catch::Contains("no space left"));
  CHECK(run.results[1].exit_code == kExitPeerLost);
  CHECK(run.results[1].peer == 0);
  options.adjust = nullptr;
  options.generation = 1;
  CHECK(bench.train(bench.config(), options).first().counters.step == 12);
}

TEST_CASE("a fenced-off rank 0 ends with 84 and publishes nothing") {
  const Bench bench;
  RunOptions old;
  old.adjust = [&bench](int, TrainRuntime& runtime, LocalGroup&) {
    runtime.progress = [&bench](const ProgressReport& report) {
      if (report.step != 6) return;
      CHECK(raise_fence(posix_file_system(), bench.checkpoints(), {"r", 1}, "young").ok());
    };
  };
  const Run run = bench.train(bench.config(), old);
  CHECK(run.first().exit_code == kExitStorage);
  CHECK_THAT(run.first().message, Catch::Contains("belongs to run r, generation 1"));
  CHECK_FALSE(fs::exists(bench.checkpoints() + "/step-8"));
  // And it does not get in again.
  CHECK(bench.train(bench.config()).first().exit_code == kExitStorage);
}

TEST_CASE("ranks that do not share the storage load through rank 0") {
  struct Blind : FaultyFileSystem {
    Blind() : FaultyFileSystem([](int, const std::string&) { return absl::OkStatus(); }) {}
    absl::StatusOr<std::vector<std::byte>> read(const std::string& path) override {
      return absl::NotFoundError(path);
    }
  } blind;
  const Bench calm;
  RunOptions options;
  options.ranks = 2;
  const Run whole = calm.train(calm.config(), options);
  const Bench bench;
  options.adjust = [&blind](int rank, TrainRuntime& runtime, LocalGroup&) {
    if (rank == 1) runtime.files = &blind;
  };
  REQUIRE(bench.train(bench.config({"steps=8"}), options).first().exit_code == kExitDone);
  options.generation = 1;
  const Run rest = bench.train(bench.config(), options);
  CHECK(rest.noted("checkpoint.dir is not shared with rank 1"));
  for (const TrainResult& result : rest.results) {
    CHECK(result.param_hash == whole.first().param_hash);
  }
}

TEST_CASE("--resume none and PATH choose the start; restarts go on from their own") {
  const Bench bench;
  REQUIRE(bench.train(bench.config()).first().exit_code == kExitDone);  // 4, 8, 12 of run r
  RunOptions options;
  options.run = "s";
  options.resume = {ResumeChoice::Kind::kNone, ""};
  const Run blocked = bench.train(bench.config(), options);
  CHECK(blocked.first().exit_code == kExitConfiguration);
  CHECK_THAT(blocked.first().message, Catch::Contains("step-12 of run r"));

  options.resume = {ResumeChoice::Kind::kPath, bench.checkpoints() + "/step-8"};
  CHECK(bench.train(bench.config(), options).first().exit_code == kExitConfiguration);
  fs::remove_all(bench.checkpoints() + "/step-12");
  const Run rolled = bench.train(bench.config({"steps=10"}), options);
  CHECK(rolled.first().exit_code == kExitDone);
  CHECK(rolled.losses().size() == 2);
  // The next generation of run s: its own step 10, not step 8 again.
  options.generation = 1;
  const Run rest = bench.train(bench.config({"steps=11"}), options);
  CHECK(rest.losses().size() == 1);

  // From a directory elsewhere: its newest.
  const Bench elsewhere;
  options.generation = 0;
  options.resume.path = bench.checkpoints();
  const Run moved = elsewhere.train(elsewhere.config({"steps=13"}), options);
  INFO(moved.first().message);
  CHECK(moved.losses().size() == 2);
  options.resume.path = bench.dir() / "corpus";
  const Bench wrong;
  const Run refused = wrong.train(wrong.config(), options);
  CHECK(refused.first().exit_code == kExitConfiguration);
  CHECK_THAT(refused.first().message, Catch::Contains("no complete checkpoint"));
}

TEST_CASE("a checkpoint of another model is refused, one of another recipe is told") {
  const Bench bench;
  REQUIRE(bench.train(bench.config({"steps=4"})).first().exit_code == kExitDone);
  const auto refusal = [&](const std::vector<std::string>& settings) {
    const Run run = bench.train(bench.config(settings));
    CHECK(run.first().exit_code == kExitConfiguration);
    return run.first().message;
  };
  CHECK_THAT(refusal({"model.n_layer=2"}), Catch::Contains("of another model"));
  CHECK_THAT(refusal({"model.n_head=1"}), Catch::Contains("of another model"));
  CHECK_THAT(refusal({"model.n_ctx=8"}), Catch::Contains("wpe.weight has another shape"));
  const Run run = bench.train(bench.config({"optimizer.params.lr=0.5", "fp16.enabled=true"}));
  CHECK(run.first().exit_code == kExitDone);
  CHECK(run.noted("/optimizer/lr"));
  CHECK(run.lines.front()["loss_scale"] == 65536);  // fp16 is new here: its scaler starts anew
}

}  // namespace
}  // namespace muster::runtime
