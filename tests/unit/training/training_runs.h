// SPDX-License-Identifier: Apache-2.0
//
// Whole training runs inside a test: ranks as threads over the local group, a small model, real
// text.
#pragma once

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/unit/training/scratch.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/train/trainer.h"

namespace muster::test {

// English, from the corpus that the quickstart uses.
inline std::string some_text(std::size_t bytes) {
  std::ifstream file("/usr/share/games/fortunes/computers", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  REQUIRE(text.size() >= bytes);
  text.resize(bytes);
  return text;
}

struct Run {
  std::vector<runtime::TrainResult> results;  // by rank
  std::vector<nlohmann::json> lines;          // rank 0's
  std::vector<std::string> notes;
  std::multiset<std::uint64_t> samples;  // consumed, over all ranks

  const runtime::TrainResult& first() const { return results.front(); }
  bool noted(const std::string& word) const {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.find(word) != std::string::npos;
    });
  }
  std::vector<double> losses() const {
    std::vector<double> found;
    for (const nlohmann::json& line : lines) {
      if (line.contains("grad_norm")) {
        found.push_back(line["loss"].is_null() ? -1 : line["loss"].get<double>());
      }
    }
    return found;
  }
};

struct RunOptions {
  int ranks = 1;
  std::string run = "r";
  Generation generation = 0;
  runtime::ResumeChoice resume = {};
  // May change what a rank is given, its group's fate included.
  std::function<void(int rank, runtime::TrainRuntime&, runtime::LocalGroup&)> adjust = {};
};

class Bench {
 public:
  explicit Bench(std::size_t text_bytes = 20'000)
      : corpus_(dir_.write("corpus", some_text(text_bytes))) {}

  std::string checkpoints() const { return dir_ / "checkpoints"; }
  const Scratch& dir() const { return dir_; }

  // 1 layer, width 32, context 16; 12 samples a step in micro-batches of 2; 12 steps; saves every
  // 4 into `checkpoints()`.
  runtime::TrainConfig config(std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), "data.path=" + corpus_);
    settings.insert(settings.begin() + 1, "checkpoint.dir=" + checkpoints());
    const auto parsed = runtime::parse_config(kText, "bench", settings);
    INFO(parsed.status());
    REQUIRE(parsed.ok());
    return parsed->config;
  }

  Run train(const runtime::TrainConfig& config, const RunOptions& options = {}) const {
    return train(std::vector<runtime::TrainConfig>(static_cast<std::size_t>(options.ranks), config),
                 options);
  }

  // One configuration a rank.
  Run train(const std::vector<runtime::TrainConfig>& configs, const RunOptions& options) const {
    runtime::LocalGroup group(options.ranks, options.generation, std::chrono::seconds(60));
    Run run;
    run.results.resize(configs.size());
    std::mutex mutex;
    const auto work = [&](int rank) {
      const auto member = group.member(rank);
      runtime::TrainRuntime runtime(*member);
      runtime.run = options.run;
      runtime.nonce = "n" + std::to_string(options.generation) + "-" + std::to_string(rank);
      runtime.build = {"test", "test", "test"};
      runtime.resume = options.resume;
      runtime.line = [&](const std::string& line) {
        run.lines.push_back(nlohmann::json::parse(line));
      };
      runtime.note = [&](const std::string& note) {
        const std::lock_guard lock(mutex);
        run.notes.push_back(note);
      };
      runtime.consumed = [&](std::uint64_t first, std::uint64_t count) {
        const std::lock_guard lock(mutex);
        for (std::uint64_t i = 0; i < count; ++i)
          run.samples.insert(first + i);
      };
      if (options.adjust) options.adjust(rank, runtime, group);
      auto& result = run.results[static_cast<std::size_t>(rank)];
      result = runtime::train(configs[static_cast<std::size_t>(rank)], runtime);
      // A process that ends takes its sockets with it.
      if (result.exit_code != 0) group.lose(rank);
    };
    std::vector<std::thread> threads;
    for (int rank = 1; rank < options.ranks; ++rank)
      threads.emplace_back(work, rank);
    work(0);
    for (std::thread& thread : threads)
      thread.join();
    return run;
  }

 private:
  static constexpr const char* kText = R"({
    "model": {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_ctx": 16, "vocab_size": 256},
    "data": {"path": ""}, "steps": 12, "seed": 7,
    "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95],
                                              "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 4}},
    "checkpoint": {"every_steps": 4}})";

  Scratch dir_ = Scratch::in_memory();
  std::string corpus_;
};

}  // namespace muster::test
