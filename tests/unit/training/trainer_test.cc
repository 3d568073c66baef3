// SPDX-License-Identifier: Apache-2.0
//
// Whole runs: learning, resuming, agreeing, stopping.
#include <filesystem>
#include <numeric>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/unit/training/training_runs.h"
#include "worker_runtime/data/corpus.h"

namespace muster::runtime {
namespace {

namespace fs = std::filesystem;
using test::Bench;
using test::Run;
using test::RunOptions;

const std::vector<std::string> kPrecisions = {"seed=7", "bf16.enabled=true", "fp16.enabled=true"};

// Every sample of steps (from, to] once, and no other.
bool consumed_exactly(const Run& run, std::uint64_t from, std::uint64_t to) {
  std::multiset<std::uint64_t> expected;
  for (std::uint64_t sample = from * 12; sample < to * 12; ++sample)
    expected.insert(sample);
  return run.samples == expected;
}

struct StopAt : Overseer {
  explicit StopAt(int calls) : calls_left(calls) {}
  bool stop_requested() override { return --calls_left <= 0; }
  int calls_left;
};

TEST_CASE("the loss goes down on real text, in every number format") {
  const Bench bench(60'000);
  for (const std::string& precision : kPrecisions) {
    INFO(precision);
    const Run run = bench.train(bench.config(
        {precision, "steps=150", "checkpoint.every_steps=0", "optimizer.params.lr=0.02",
         "scheduler.params.warmup_max_lr=0.02", "checkpoint.dir="}));
    REQUIRE(run.first().exit_code == kExitDone);
    const std::vector<double> losses = run.losses();
    REQUIRE(losses.size() == 150);
    CHECK(losses.front() > 5.4);  // log 256 = 5.55
    CHECK(losses.front() < 5.7);
    const double late = std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10;
    CHECK(late < 3.2);
    CHECK(run.lines.back()["done"] == true);
    CHECK(run.lines.back()["step"] == 150);
    CHECK(run.lines.back()["param_hash"] == run.first().param_hash);
  }
}

TEST_CASE("killed at any step and resumed, the end has the same bits") {
  for (const std::string& precision : kPrecisions) {
    const Bench calm;
    const Run whole = calm.train(calm.config({precision}));
    REQUIRE(whole.first().exit_code == kExitDone);
    for (const std::uint64_t fatal : {3, 4, 7, 11}) {
      INFO(precision << ", killed at step " << fatal);
      const Bench bench;
      const pid_t child = ::fork();
      if (child == 0) {
        RunOptions options;
        options.adjust = [fatal](int, TrainRuntime& runtime, LocalGroup&) {
          runtime.progress = [fatal](const ProgressReport& report) {
            if (report.step == fatal) ::_exit(9);
          };
        };
        ::_exit(bench.train(bench.config({precision}), options).first().exit_code);
      }
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      REQUIRE(WEXITSTATUS(status) == 9);
      RunOptions again;
      again.generation = 1;
      const Run rest = bench.train(bench.config({precision}), again);
      REQUIRE(rest.first().exit_code == kExitDone);
      CHECK(rest.first().param_hash == whole.first().param_hash);
      CHECK(rest.first().counters == whole.first().counters);
      const std::uint64_t resumed = (fatal - 1) / 4 * 4;  // killed before it saved step 4
      CHECK(consumed_exactly(rest, resumed, 12));
      CHECK(rest.losses().size() == 12 - resumed);
    }
  }
}

TEST_CASE("with parallel.deterministic the world size leaves no trace") {
  std::set<std::string> hashes;
  std::set<std::string> losses;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Bench bench;
    RunOptions options;
    options.ranks = ranks;
    const Run run = bench.train(
        bench.config({"parallel.deterministic=true", "eval.every_steps=6", "eval.batches=3"}),
        options);
    INFO(ranks << " ranks: " << run.first().message);
    for (const TrainResult& result : run.results) {
      REQUIRE(result.exit_code == kExitDone);
      hashes.insert(result.param_hash);
    }
    CHECK(consumed_exactly(run, 0, 12));
    std::string told;
    for (const nlohmann::json& line : run.lines) {
      if (line.contains("eval_loss")) told += line["eval_loss"].dump() + " ";
      if (line.contains("loss")) told += line["loss"].dump() + " ";
    }
    losses.insert(told);
  }
  CHECK(hashes.size() == 1);
  CHECK(losses.size() == 1);
}

TEST_CASE("without it ranks agree with each other, and with one rank to rounding") {
  const Bench one;
  const std::vector<double> alone = one.train(one.config()).losses();
  for (const char* wire : {"parallel.wire_dtype=fp32", "parallel.wire_dtype=bf16"}) {
    const Bench bench;
    RunOptions options;
    options.ranks = 3;
    const Run run = bench.train(bench.config({wire}), options);
    for (const TrainResult& result : run.results) {
      REQUIRE(result.exit_code == kExitDone);
      CHECK(result.param_hash == run.first().param_hash);
    }
    const double tolerance = std::string(wire).ends_with("fp32") ? 1e-4 : 2e-2;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CHECK(run.losses()[i] == Approx(alone[i]).epsilon(tolerance));
    }
  }
}

TEST_CASE("a lost rank ends the others with 81; another number of ranks goes on from the save") {
  const Bench calm;
  const Run whole = calm.train(calm.config({"parallel.deterministic=true"}));
  const Bench bench;
  RunOptions options;
  options.ranks = 3;
  options.adjust = [](int rank, TrainRuntime& runtime, LocalGroup& group) {
    if (rank != 2) return;
    runtime.progress = [&group](const ProgressReport& report) {
      if (report.step == 6) group.lose(2);
    };
  };
  const TrainConfig config = bench.config({"parallel.deterministic=true"});
  const Run killed = bench.train(config, options);
  int named = 0;  // a survivor may also see another one that has left already because of rank 2
  for (const std::size_t rank : {0, 1}) {
    const TrainResult& victim = killed.results[rank];
    CHECK(victim.exit_code == kExitPeerLost);
    CHECK((victim.peer == 2 || victim.peer == 1 - static_cast<int>(rank)));
    CHECK_THAT(victim.message, Catch::Contains("rank " + std::to_string(victim.peer) + " is gone"));
    named += victim.peer == 2 ? 1 : 0;
  }
  CHECK(named >= 1);
  RunOptions again;
  again.ranks = 2;
  again.generation = 1;
  const Run rest = bench.train(config, again);
  CHECK(rest.first().exit_code == kExitDone);
  CHECK(rest.first().param_hash == whole.first().param_hash);
  CHECK(consumed_exactly(rest, 4, 12));
  CHECK(rest.lines.back()["done"] == true);
}

TEST_CASE("a stop is agreed on, saved, and resumed exactly") {
  const Bench calm;
  RunOptions two;
  two.ranks = 2;
  const Run whole = calm.train(calm.config(), two);
  const Bench bench;
  StopAt stop(6);  // asked by one rank only, in its sixth step
  RunOptions options = two;
  options.adjust = [&stop](int rank, TrainRuntime& runtime, LocalGroup&) {
    if (rank == 1) runtime.overseer = &stop;
  };
  const Run stopped = bench.train(bench.config(), options);
  for (const TrainResult& result : stopped.results) {
    CHECK(result.exit_code == kExitStopped);
    CHECK(result.counters.step == 6);
  }
  CHECK(stopped.lines.back()["stopped"] == true);
  CHECK(fs::exists(bench.checkpoints() + "/step-6/manifest.json"));
  two.generation = 1;
  const Run rest = bench.train(bench.config(), two);
  CHECK(rest.first().exit_code == kExitDone);
  CHECK(rest.first().param_hash == whole.first().param_hash);
}

TEST_CASE("a run that was done says the same again") {
  const Bench bench;
  const Run whole = bench.train(bench.config());
  RunOptions again;
  again.generation = 3;
  const Run rest = bench.train(bench.config(), again);
  REQUIRE(rest.lines.size() == 1);
  CHECK(rest.lines.back() == whole.lines.back());
  CHECK(rest.samples.empty());
}

TEST_CASE("what was left open follows the world size of the start, for ever") {
  const Bench bench;
  const std::vector<std::string> open = {"train_batch_size=12"};
  TrainConfig config = bench.config();
  config.batch = {12, {}, {}};
  config.steps = 4;
  RunOptions options;
  options.ranks = 3;
  REQUIRE(bench.train(config, options).first().exit_code == kExitDone);
  config.steps = 8;
  options.ranks = 2;
  options.generation = 1;
  const Run rest = bench.train(config, options);
  REQUIRE(rest.first().exit_code == kExitDone);
  CHECK(consumed_exactly(rest, 4, 8));
  CHECK(rest.noted("changed since the checkpoint was made: /steps"));
  CHECK(rest.noted("made by 3 ranks, these are 2"));
}

TEST_CASE("ranks that were told different things end with 2 before they train") {
  const Bench bench;
  std::vector<TrainConfig> configs = {bench.config(), bench.config({"seed=8"})};
  RunOptions options;
  options.ranks = 2;
  Run run = bench.train(configs, options);
  for (const TrainResult& result : run.results) {
    CHECK(result.exit_code == kExitConfiguration);
    CHECK_THAT(result.message,
               Catch::Contains("rank 1 and rank 0 differ") && Catch::Contains("/seed"));
  }
  configs[1] = bench.config();
  configs[1].data_path = bench.dir().write("other", test::some_text(19'999));
  run = bench.train(configs, options);
  for (const TrainResult& result : run.results) {
    CHECK(result.exit_code == kExitConfiguration);
    CHECK_THAT(result.message, Catch::Contains("corpus") && Catch::Contains("19999 bytes"));
  }
  CHECK(run.samples.empty());
}

TEST_CASE("a corpus or model that does not fit ends with 2 and names the need") {
  const Bench bench;
  const auto refusal = [&](const std::vector<std::string>& settings) {
    const Run run = bench.train(bench.config(settings));
    CHECK(run.first().exit_code == kExitConfiguration);
    return run.first().message;
  };
  CHECK_THAT(refusal({"data.path=/no/such"}), Catch::Contains("/no/such"));
  CHECK_THAT(refusal({"model.vocab_size=100"}), Catch::Contains("vocab_size >= 256; it is 100"));
  CHECK_THAT(refusal({"model.n_ctx=16000"}), Catch::Contains("needs at least 32001"));
  CHECK_THAT(refusal({"train_batch_size=13"}), Catch::Contains("is not a multiple"));
}

}  // namespace
}  // namespace muster::runtime
