// SPDX-License-Identifier: Apache-2.0
//
// The small parts of training: scaler, environment, error file, lines, agreement.
#include <cmath>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <signal.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/training/scratch.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/train/agreement.h"
#include "worker_runtime/train/environment.h"
#include "worker_runtime/train/error_file.h"
#include "worker_runtime/train/loss_scaler.h"
#include "worker_runtime/train/metrics.h"
#include "worker_runtime/train/output.h"

namespace muster::runtime {
namespace {

using nlohmann::json;
using test::Scratch;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

LossScaleConfig torch_scale(double init, std::int64_t interval, double floor) {
  LossScaleConfig config;
  config.kind = LossScaleConfig::Kind::kTorch;
  config.init_scale = init;
  config.growth_interval = interval;
  config.min_scale = floor;
  return config;
}

TEST_CASE("torch's scaler: halves on overflow, doubles after clean steps, has a floor of ours") {
  LossScaler scaler(torch_scale(16, 3, 4));
  CHECK(scaler.update(false) == ScalerOutcome::kStep);
  CHECK(scaler.update(false) == ScalerOutcome::kStep);
  CHECK(scaler.update(true) == ScalerOutcome::kSkip);
  CHECK(scaler.scale() == 8);
  for (int i = 0; i < 3; ++i)
    CHECK(scaler.update(false) == ScalerOutcome::kStep);
  CHECK(scaler.scale() == 16);
  CHECK(scaler.update(true) == ScalerOutcome::kSkip);
  CHECK(scaler.update(true) == ScalerOutcome::kSkip);
  CHECK(scaler.scale() == 4);
  CHECK(scaler.update(true) == ScalerOutcome::kStuck);
}

TEST_CASE("a scaler goes on where a checkpoint left it") {
  LossScaleConfig deepspeed;
  deepspeed.kind = LossScaleConfig::Kind::kDeepSpeed;
  deepspeed.deepspeed.loss_scale_window = 4;
  for (const LossScaleConfig& config : {torch_scale(16, 5, 1), deepspeed}) {
    const auto overflow = [](int step) { return step % 7 == 3 || step == 11; };
    LossScaler whole(config);
    for (int step = 0; step < 40; ++step)
      whole.update(overflow(step));
    LossScaler first(config);
    for (int step = 0; step < 17; ++step)
      first.update(overflow(step));
    TrainCounters counters;
    first.store(counters);
    LossScaler second(config);
    second.restore(counters);
    for (int step = 17; step < 40; ++step)
      second.update(overflow(step));
    CHECK(second.scale() == whole.scale());
  }
}

TEST_CASE("without fp16 a bad gradient is skipped and nothing is scaled") {
  LossScaler scaler({});
  CHECK_FALSE(scaler.dynamic());
  CHECK(scaler.update(true) == ScalerOutcome::kSkip);
  CHECK(scaler.update(false) == ScalerOutcome::kStep);
  CHECK(scaler.scale() == 1);
}

absl::StatusOr<LauncherFacts> facts_of(const std::map<std::string, std::string>& variables) {
  return launcher_facts([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST_CASE("no launcher is a run of one rank") {
  const auto facts = facts_of({});
  REQUIRE(facts.ok());
  CHECK_FALSE(facts->launched);
  CHECK(facts->rank == 0);
  CHECK(facts->world_size == 1);
  CHECK(facts->generation == 0);
  CHECK(facts->run.empty());
}

TEST_CASE("Muster's variables are read, and torchrun's") {
  const auto muster = facts_of({{"RANK", "3"},
                                {"WORLD_SIZE", "4"},
                                {"MUSTER_RUN_ID", "20260101T000000-abcd"},
                                {"MUSTER_GENERATION", "2"},
                                {"TORCHELASTIC_RESTART_COUNT", "1"},
                                {"MASTER_ADDR", "host"},
                                {"MUSTER_STOP_FILE", "/stop"},
                                {"TORCHELASTIC_ERROR_FILE", "/error"}});
  REQUIRE(muster.ok());
  CHECK(muster->launched);
  CHECK(muster->rank == 3);
  CHECK(muster->generation == 2);
  CHECK(muster->stop_file == "/stop");
  CHECK(muster->error_file == "/error");
  const auto torchrun =
      facts_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TORCHELASTIC_RESTART_COUNT", "5"}});
  CHECK(torchrun->generation == 5);
}

TEST_CASE("nonsense in a variable is named") {
  const auto refused = [](const std::map<std::string, std::string>& variables) {
    const auto facts = facts_of(variables);
    return facts.ok() ? std::string("accepted") : std::string(facts.status().message());
  };
  CHECK_THAT(refused({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), Catch::Contains("RANK=x"));
  CHECK_THAT(refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), Catch::Contains("below WORLD_SIZE=2"));
  CHECK_THAT(refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), Catch::Contains("RANK=-1"));
  CHECK_THAT(refused({{"RANK", "1"}}), Catch::Contains("WORLD_SIZE is not"));
  CHECK_THAT(refused({{"WORLD_SIZE", "1"}}), Catch::Contains("RANK is not"));
  CHECK_THAT(refused({{"WORLD_SIZE", "0"}, {"RANK", "0"}}), Catch::Contains("WORLD_SIZE=0"));
  CHECK_THAT(refused({{"MUSTER_GENERATION", "1.5"}}), Catch::Contains("MUSTER_GENERATION=1.5"));
  CHECK_THAT(refused({{"MUSTER_RUN_ID", "a\nb"}}), Catch::Contains("MUSTER_RUN_ID"));
}

TEST_CASE("the error file is torchrun's, with victim and peer where there are") {
  const Scratch dir;
  const std::string path = dir / "error.json";
  REQUIRE(write_error_file(path, {80, "the scale is at its floor"}).ok());
  const json cause = json::parse(contents(path));
  CHECK(cause["message"]["message"] == "muster-train: the scale is at its floor");
  CHECK(cause["message"]["errorCode"] == 80);
  CHECK(std::stol(cause["message"]["extraInfo"]["timestamp"].get<std::string>()) > 1'600'000'000);
  CHECK(cause["message"]["extraInfo"].contains("py_callstack"));
  CHECK_FALSE(cause.contains("secondary"));
  REQUIRE(write_error_file(path, {81, "rank 3 is gone", true, 3}).ok());
  const json victim = json::parse(contents(path));
  CHECK(victim["secondary"] == true);
  CHECK(victim["peer"] == 3);
  REQUIRE(write_error_file(path, {81, "not UTF-8: \xff", true, -1}).ok());
  CHECK_FALSE(json::parse(contents(path)).contains("peer"));
  CHECK(write_error_file("", {}).ok());
  CHECK_FALSE(write_error_file(dir / "no/such/error.json", {}).ok());
}

TEST_CASE("lines are JSON that any reader reads, whatever the numbers") {
  StepLine line;
  line.step = 7;
  line.loss = std::numeric_limits<double>::quiet_NaN();
  line.grad_norm = std::numeric_limits<double>::infinity();
  line.skipped = true;
  const json read = json::parse(step_line(line));
  CHECK(read["schema"] == 1);
  CHECK(read["step"] == 7);
  CHECK(read["loss"].is_null());
  CHECK(read["grad_norm"].is_null());
  CHECK(read["skipped"] == true);
  for (const char* key :
       {"samples", "lr", "loss_scale", "tokens_per_s", "step_ms", "generation", "world_size"}) {
    CHECK(read.contains(key));
  }
  TrainCounters counters;
  counters.step = 3;
  counters.loss = 2.5;
  const json done = json::parse(done_line(counters, "abc"));
  CHECK(done["done"] == true);
  CHECK(done["param_hash"] == "abc");
  CHECK(done["loss"] == 2.5);
  CHECK(json::parse(stopped_line(counters, true))["saved"] == true);
  CHECK(json::parse(eval_line(1, 2, 2.25, 64, 1.5))["eval_loss"] == 2.25);
}

TEST_CASE("a metrics file is appended to; a reader that left costs one note") {
  const Scratch dir;
  std::vector<std::string> notes;
  const auto note = [&notes](const std::string& text) { notes.push_back(text); };
  const int saved = ::dup(STDOUT_FILENO);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);  // nobody reads
  const auto previous = ::signal(SIGPIPE, SIG_IGN);
  ::fflush(stdout);
  ::dup2(ends[1], STDOUT_FILENO);
  ::close(ends[1]);
  for (const char* text : {"one", "two"}) {
    auto output = LineOutput::open(dir / "metrics", note);
    output->write(text);
    output->write(text);
  }
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  ::signal(SIGPIPE, previous);
  CHECK(contents(dir / "metrics") == "one\none\ntwo\ntwo\n");
  REQUIRE(notes.size() == 2);  // one an output
  CHECK_THAT(notes[0], Catch::Contains("standard output"));
  CHECK_THAT(std::string(LineOutput::open(dir / "no/metrics", note).status().message()),
             Catch::Contains("no/metrics"));
}

StartFacts same_facts() {
  StartFacts facts;
  facts.config = R"({"seed": 1, "data": {"path": "/a"}})";
  facts.corpus_path = "/a";
  facts.corpus_bytes = 10;
  facts.build = {"0.1.0", "g++ 12", "avx512"};
  facts.sees_probe = true;
  return facts;
}

TEST_CASE("ranks that would train something else are named") {
  const std::vector<StartFacts> same(3, same_facts());
  CHECK(check_agreement(same).ok());
  CHECK(agreement_notes(same, true).empty());
  const auto refused = [](const std::function<void(StartFacts&)>& change) {
    std::vector<StartFacts> facts(3, same_facts());
    change(facts[2]);
    return std::string(check_agreement(facts).message());
  };
  CHECK_THAT(refused([](StartFacts& f) { f.config = R"({"seed": 2, "data": {}})"; }),
             Catch::Contains("rank 2 and rank 0 differ in their configuration: /seed"));
  CHECK_THAT(refused([](StartFacts& f) { f.corpus_bytes = 9; }),
             Catch::Contains("rank 2 and rank 0 differ in their corpus: /a has 9 bytes there"));
  CHECK_THAT(refused([](StartFacts& f) { f.corpus_digest = 9; }),
             Catch::Contains("with other contents"));
  CHECK_THAT(refused([](StartFacts& f) { f.layout_hash = 9; }), Catch::Contains("layout"));
  std::vector<StartFacts> odd(3, same_facts());
  odd[0].build.isa = "onednn 2.6.3 avx512_core, kernels avx512";
  odd[1].build.isa = "onednn 2.6.3 avx2, kernels avx2";
  odd[2].build.isa = "onednn 2.6.3 avx512_core, kernels avx2";  // the same bits
  odd[2].sees_probe = false;
  const std::vector<std::string> notes = agreement_notes(odd, true);
  REQUIRE(notes.size() == 2);
  CHECK_THAT(notes[0], Catch::Contains("instruction set") && Catch::Contains("rank 1:"));
  CHECK_THAT(notes[1], Catch::Contains("not shared with rank 2"));
  CHECK(agreement_notes(odd, false).size() == 1);
}

TEST_CASE("facts reach every rank as they were told") {
  LocalGroup group(2, 0);
  std::vector<absl::StatusOr<std::vector<StartFacts>>> got(2, absl::UnknownError("none"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto member = group.member(rank);
      StartFacts mine = same_facts();
      mine.corpus_digest = ~std::uint64_t{0} - static_cast<std::uint64_t>(rank);
      got[static_cast<std::size_t>(rank)] = exchange_facts(*member, mine);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& facts : got) {
    REQUIRE(facts.ok());
    REQUIRE(facts->size() == 2);
    CHECK((*facts)[1].corpus_digest == ~std::uint64_t{0} - 1);
    CHECK((*facts)[1].build == same_facts().build);
  }
}

}  // namespace
}  // namespace muster::runtime
