// SPDX-License-Identifier: Apache-2.0
//
// Whole training runs whose ranks have devices, through the fakes: against the CPU's losses, alone
// and with several ranks over either exchange, interrupted and resumed, with bad numbers in it.
#include "worker_runtime/cuda/engine/device_engine.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/fake_cuda/blas.h"
#include "tests/unit/cuda/nccl_ranks.h"
#include "tests/unit/training/training_runs.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime::cuda {
namespace {

using Pace = FakeDriver::Pace;
using test::Bench;
using test::Run;
using test::RunOptions;

const std::vector<std::string> kPrecisions = {"seed=7", "bf16.enabled=true", "fp16.enabled=true"};
// Several buckets, where the model is not too small.
const std::string kSmallBuckets = "parallel.bucket_mb=0.07";

enum class Way { kStaged, kNccl };

// Devices for a run of several ranks; NCCL's meeting place too.
struct Machine {
  explicit Machine(int size, Pace pace = Pace::kLazy, std::uint64_t seed = 1)
      : ranks(size, pace, seed) {}

  // Puts a rank's engine on a device of its own, or all on device 0.
  void use(int rank, TrainRuntime& runtime, Way way, bool share = false,
           const BlasApi& blas = fake_blas()) {
    const auto device =
        must(Device::open(ranks.driver.api(), share ? 0 : rank, FakeDriver::images()));
    runtime.make_engine = [this, rank, device, way, blas](const EngineRequest& request) {
      must(device->use());
      return make_device_engine(request, device, blas, [&](const ExchangeRoom& room) {
        return exchange(rank, device, way, request, room);
      });
    };
  }
  absl::StatusOr<std::unique_ptr<GradientExchange>> exchange(int rank,
                                                             const std::shared_ptr<Device>& device,
                                                             Way way, const EngineRequest& request,
                                                             const ExchangeRoom& room) {
    if (request.group.size() == 1) return make_no_exchange();
    const WireType wire = wire_type(request.parallel);
    if (way == Way::kStaged) {
      return make_staged_exchange(device, request.group, wire, request.layout.hash, room);
    }
    auto communicator = ranks.connect(rank, device);
    if (!communicator.ok()) return communicator.status();
    return make_nccl_exchange(device, *std::move(communicator), wire, room);
  }
  RunOptions options(int size, Way way = Way::kStaged, bool share = false) {
    RunOptions options;
    options.ranks = size;
    options.adjust = [this, way, share](int rank, TrainRuntime& runtime, LocalGroup&) {
      use(rank, runtime, way, share);
    };
    return options;
  }

  Ranks ranks;
};

Run on_devices(const std::vector<std::string>& settings, int size, Way way = Way::kStaged,
               Pace pace = Pace::kLazy, std::uint64_t seed = 1, bool share = false) {
  const Bench bench;
  Machine machine(size, pace, seed);
  Run run = bench.train(bench.config(settings), machine.options(size, way, share));
  for (const TrainResult& result : run.results)
    UNSCOPED_INFO(result.message);
  for (const TrainResult& result : run.results) {
    REQUIRE(result.exit_code == kExitDone);
    REQUIRE(result.param_hash == run.first().param_hash);
  }
  return run;
}

}  // namespace

TEST_CASE("a device learns what the CPU learns, in every number format") {
  for (const std::string& precision : kPrecisions) {
    INFO(precision);
    const Bench bench;
    const std::vector<std::string> settings{
        precision, "steps=50", "eval.every_steps=25", "eval.batches=4",
        "scheduler.params.warmup_max_lr=0.001"};  // a rate at which differences do not grow
    const Run cpu = bench.train(bench.config(settings));
    REQUIRE(cpu.first().exit_code == kExitDone);
    const Run device = on_devices(settings, 1);
    const double tolerance = precision == "seed=7" ? 1e-4 : 1e-2;
    REQUIRE(device.losses().size() == 50);
    for (std::size_t i = 0; i < 50; ++i) {
      INFO("step " << i + 1);
      CHECK(device.losses()[i] == Approx(cpu.losses()[i]).epsilon(tolerance));
    }
    CHECK(device.samples == cpu.samples);
  }
}

TEST_CASE("the same run has the same bits at any pace of the device") {
  std::set<std::string> hashes;
  for (const Pace pace : {Pace::kEager, Pace::kLazy, Pace::kRandom}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      if (pace != Pace::kRandom && seed > 1) continue;
      hashes.insert(
          on_devices({"bf16.enabled=true", "steps=4", kSmallBuckets}, 2, Way::kStaged, pace, seed)
              .first()
              .param_hash);
    }
  }
  CHECK(hashes.size() == 1);
}

TEST_CASE("staged and NCCL add alike, and so do ranks that share a device") {
  for (const int size : {2, 3}) {
    const std::vector<std::string> settings{kSmallBuckets, "fp16.enabled=true", "steps=4"};
    const Run staged = on_devices(settings, size);
    CHECK(on_devices(settings, size, Way::kNccl).first().param_hash == staged.first().param_hash);
    CHECK(on_devices(settings, size, Way::kNccl, Pace::kRandom, 5).first().param_hash ==
          staged.first().param_hash);
    CHECK(on_devices(settings, size, Way::kStaged, Pace::kLazy, 1, true).first().param_hash ==
          staged.first().param_hash);
    // How it is cut leaves no trace.
    CHECK(on_devices({"fp16.enabled=true", "steps=4"}, size).first().param_hash ==
          staged.first().param_hash);
  }
}

TEST_CASE("every bucket of several is summed whichever way it takes") {
  std::vector<std::string> settings{kSmallBuckets, "parallel.first_bucket_mb=0.01",
                                    "model.n_embd=64", "steps=3"};
  const Bench bench;
  const FlatLayout layout = flat_layout(bench.config(settings).model);
  REQUIRE(cut_buckets(layout, {1, 1}).size() > 3);
  const std::string staged = on_devices(settings, 2).first().param_hash;
  CHECK(on_devices(settings, 2, Way::kNccl).first().param_hash == staged);
  settings[0] = "parallel.bucket_mb=32";
  CHECK(on_devices(settings, 2).first().param_hash == staged);
}

TEST_CASE("a 16-bit wire agrees with the FP32 one to rounding, either way") {
  const std::vector<double> wide = on_devices({kSmallBuckets, "steps=4"}, 2).losses();
  for (const Way way : {Way::kStaged, Way::kNccl}) {
    for (const char* wire : {"parallel.wire_dtype=bf16", "parallel.wire_dtype=fp16"}) {
      const std::vector<double> narrow =
          on_devices({kSmallBuckets, wire, "steps=4"}, 2, way).losses();
      for (std::size_t i = 0; i < wide.size(); ++i)
        CHECK(narrow[i] == Approx(wide[i]).epsilon(2e-2));
    }
  }
}

TEST_CASE("with parallel.deterministic a device's run does not depend on the world size") {
  std::set<std::string> hashes;
  for (const int size : {1, 2, 3, 5}) {
    hashes.insert(on_devices({"parallel.deterministic=true", "bf16.enabled=true", "steps=4"}, size)
                      .first()
                      .param_hash);
  }
  CHECK(hashes.size() == 1);
}

TEST_CASE("ranks without micro-batches take part") {
  const std::vector<std::string> settings{"train_micro_batch_size_per_gpu=6", "steps=4"};
  const Run two = on_devices(settings, 2);
  CHECK(on_devices(settings, 3).first().param_hash == two.first().param_hash);
  CHECK(on_devices(settings, 3, Way::kNccl).first().param_hash == two.first().param_hash);
}

TEST_CASE("stopped and resumed on devices, the end has the same bits") {
  struct StopAt : Overseer {
    explicit StopAt(int calls) : calls_left(calls) {}
    bool stop_requested() override { return --calls_left <= 0; }
    int calls_left;
  };
  const std::vector<std::string> settings{"fp16.enabled=true", kSmallBuckets};
  const std::string whole = on_devices(settings, 2).first().param_hash;
  const Bench bench;
  std::vector<StopAt> overseers(2, StopAt(6));
  {
    Machine machine(2);
    RunOptions options = machine.options(2);
    const auto use = options.adjust;
    options.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup& group) {
      use(rank, runtime, group);
      runtime.overseer = &overseers[static_cast<std::size_t>(rank)];
    };
    CHECK(bench.train(bench.config(settings), options).first().exit_code == kExitStopped);
  }
  Machine machine(2);
  RunOptions options = machine.options(2, Way::kNccl);
  options.generation = 1;
  const Run rest = bench.train(bench.config(settings), options);
  REQUIRE(rest.first().exit_code == kExitDone);
  CHECK(rest.losses().size() == 6);
  CHECK(rest.first().param_hash == whole);
}

TEST_CASE("between micro-batches nothing waits for the one before") {
  const Bench bench;
  Machine machine(1);
  RunOptions options = machine.options(1);
  const auto use = options.adjust;
  const FakeDriver& driver = machine.ranks.driver;
  const auto finished = [&driver] {  // micro-batches: each ends with this kernel
    const std::vector<std::string> log = driver.log();
    return std::count_if(log.begin(), log.end(), [](const std::string& line) {
      return line.find("muster_position_gradient") != std::string::npos;
    });
  };
  std::ptrdiff_t before = 0;
  std::size_t waits = 0;
  std::size_t asked = 0;
  options.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup& group) {
    use(rank, runtime, group);
    runtime.consumed = [&](std::uint64_t sample, std::uint64_t) {
      const auto leaf = static_cast<std::ptrdiff_t>(sample % 12 / 2);
      if (leaf == 0) {
        before = finished();
        waits = driver.waits().size();
        return;
      }
      ++asked;
      INFO("micro-batch " << leaf);
      // Those before the last two that were queued, at most.
      CHECK(finished() - before <= std::max<std::ptrdiff_t>(0, leaf - 3));
      const std::vector<std::string> all = driver.waits();
      CHECK(std::all_of(all.begin() + static_cast<std::ptrdiff_t>(waits), all.end(),
                        [](const std::string& call) { return call == "cuEventSynchronize"; }));
    };
  };
  CHECK(bench.train(bench.config({"bf16.enabled=true", "steps=3"}), options).first().exit_code ==
        kExitDone);
  CHECK(asked == 15);
}

// One step's pass: how much of it an eager device had run when each bucket left, and at its end.
struct Pass {
  std::vector<std::size_t> starts;
  std::size_t end = 0;
};

class NotedExchange : public GradientExchange {
 public:
  NotedExchange(const FakeDriver& driver, std::vector<Pass>& passes)
      : driver_(driver), passes_(passes), own_(make_no_exchange()) {}
  absl::Status start(const Bucket& bucket, float* sum, Stream& compute) override {
    pass_.starts.push_back(driver_.log().size());
    return own_->start(bucket, sum, compute);
  }
  absl::Status finish(Stream& compute) override {
    pass_.end = driver_.log().size();
    passes_.push_back(std::exchange(pass_, {}));
    return own_->finish(compute);
  }

 private:
  const FakeDriver& driver_;
  std::vector<Pass>& passes_;
  Pass pass_;
  std::unique_ptr<GradientExchange> own_;
};

TEST_CASE("buckets leave while later gradients are still computed, from graphs too") {
  const Bench bench;
  Machine machine(1, Pace::kEager);
  const FakeDriver& driver = machine.ranks.driver;
  std::vector<Pass> passes;
  RunOptions options;
  options.ranks = 1;
  options.adjust = [&](int, TrainRuntime& runtime, LocalGroup&) {
    const auto device = must(Device::open(driver.api(), 0, FakeDriver::images()));
    runtime.make_engine = [&, device](const EngineRequest& request) {
      must(device->use());
      return make_device_engine(request, device, fake_blas(), [&](const ExchangeRoom&) {
        return absl::StatusOr<std::unique_ptr<GradientExchange>>(
            std::make_unique<NotedExchange>(driver, passes));
      });
    };
  };
  const Run run =
      bench.train(bench.config({"bf16.enabled=true", kSmallBuckets, "parallel.first_bucket_mb=0.01",
                                "model.n_embd=64", "checkpoint.every_steps=0", "steps=5"}),
                  options);
  REQUIRE(run.first().exit_code == kExitDone);
  REQUIRE(passes.size() == 5);
  const std::vector<std::string> log = driver.log();
  const auto over = [&](std::size_t from, std::size_t to) {  // micro-batches: each ends with this
    return std::count_if(log.begin() + static_cast<std::ptrdiff_t>(from),
                         log.begin() + static_cast<std::ptrdiff_t>(to),
                         [](const std::string& line) {
                           return line.find("muster_position_gradient") != std::string::npos;
                         });
  };
  for (const Pass& pass : passes) {
    REQUIRE(pass.starts.size() >= 3);
    CHECK(over(pass.starts.front(), pass.end) == 1);  // of the last micro-batch
    CHECK(over(pass.starts.back(), pass.end) <= 1);
    // Between the first and the last there is more than what each bucket queues itself: its sum and
    // its check.
    const std::size_t own = 2 * (pass.starts.size() - 1);
    CHECK(pass.starts.back() - pass.starts.front() > own);
  }
}

TEST_CASE("after three steps compute is replayed from graphs, with the same bits") {
  for (const auto& [size, way] : {std::pair{1, Way::kStaged}, {2, Way::kStaged}, {2, Way::kNccl}}) {
    std::set<std::string> hashes;
    for (const bool refused : {false, true}) {
      const Bench bench;
      Machine machine(size);
      FakeDriver& driver = machine.ranks.driver;
      if (refused) driver.fail("cuStreamBeginCapture", kCuCaptureUnsupported);
      RunOptions options = machine.options(size, way);
      std::vector<std::ptrdiff_t> replayed;  // before the first step, and after each
      options.adjust = [&, way = way](int rank, TrainRuntime& runtime, LocalGroup&) {
        machine.use(rank, runtime, way);
        if (rank != 0) return;
        runtime.progress = [&](const ProgressReport&) {
          const std::vector<std::string> log = driver.log();
          replayed.push_back(std::count_if(log.begin(), log.end(), [](const std::string& line) {
            return line.find("graph of ") != std::string::npos;
          }));
        };
      };
      const Run run = bench.train(
          bench.config({"bf16.enabled=true", kSmallBuckets, "checkpoint.every_steps=0", "steps=5"}),
          options);
      REQUIRE(run.first().exit_code == kExitDone);
      hashes.insert(run.first().param_hash);
      CHECK(run.noted("without CUDA graphs, since cuStreamBeginCapture on device ") == refused);
      REQUIRE(replayed.size() >= 6);
      // Another rank may be one step further.
      CHECK(replayed[size == 1 ? 3 : 2] == 0);
      CHECK((replayed[4] > 0) == !refused);
    }
    CHECK(hashes.size() == 1);
  }
}

TEST_CASE("ranks that multiply by other algorithms are refused, and named") {
  const Bench bench;
  for (const Way way : {Way::kStaged, Way::kNccl}) {
    Machine machine(3);
    RunOptions options = machine.options(3);
    options.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup&) {
      machine.use(rank, runtime, way, false, fake_blas(rank == 2));
    };
    const Run run = bench.train(bench.config(), options);
    CHECK(run.samples.empty());
    for (const TrainResult& result : run.results) {
      CHECK(result.exit_code == kExitDevice);
      CHECK_THAT(result.message,
                 Catch::StartsWith("rank 2 and rank 0 multiply by different algorithms (cublaslt "
                                   "130000 ") &&
                     Catch::Contains(" at rank 0): install one version of cuBLAS"));
    }
  }
}

TEST_CASE("a checkpoint whose maker multiplied otherwise is gone on from, and that is said") {
  const Bench bench;
  const auto train = [&](const char* steps, Generation generation, bool otherwise) {
    Machine machine(1);
    RunOptions options;
    options.generation = generation;
    options.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup&) {
      machine.use(rank, runtime, Way::kStaged, false, fake_blas(otherwise));
    };
    const Run run = bench.train(bench.config({steps}), options);
    CHECK(run.first().exit_code == kExitDone);
    return run.noted("multiplied by other algorithms");
  };
  CHECK_FALSE(train("steps=4", 0, false));
  CHECK_FALSE(train("steps=8", 1, false));
  CHECK(train("steps=12", 2, true));
  // The CPU's products are told of with its build.
  const Run cpu = bench.train(bench.config({"steps=16"}), {.generation = 3});
  CHECK(cpu.first().exit_code == kExitDone);
  CHECK_FALSE(cpu.noted("multiplied by other algorithms"));
}

TEST_CASE("a number that is not finite is named as on the CPU") {
  const auto spoiled = [](bool on_device) {
    const Bench bench;
    Machine machine(2);
    RunOptions options = machine.options(2);
    const auto use = options.adjust;
    options.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup& group) {
      if (on_device) use(rank, runtime, group);
      if (rank != 1) return;
      const FlatLayout layout = flat_layout(bench.config().model);
      const std::size_t at = layout.find("h.0.mlp.c_fc.weight")->offset + 5;
      runtime.after_backward = [at](std::uint64_t, std::span<float> gradient) {
        gradient[at] = std::numeric_limits<float>::quiet_NaN();
      };
    };
    const Run run = bench.train(bench.config({"max_bad_steps=3", kSmallBuckets}), options);
    CHECK(run.first().exit_code == kExitNumerics);
    return run.first().message;
  };
  const std::string text = spoiled(true);
  CHECK(text == spoiled(false));
  CHECK_THAT(text, Catch::Contains("h.0.mlp.c_fc.weight at rank 1"));
}

TEST_CASE("a device that fails ends the rank with 85") {
  const Bench bench;
  Machine machine(1);
  RunOptions options = machine.options(1);
  const auto use = options.adjust;
  options.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup& group) {
    use(rank, runtime, group);
    runtime.progress = [&](const ProgressReport& report) {
      if (report.step == 3) machine.ranks.driver.fail("cuLaunchKernel", 719);
    };
  };
  const Run failed = bench.train(bench.config(), options);
  CHECK(failed.first().exit_code == kExitDevice);
  CHECK_THAT(failed.first().message, Catch::Contains("on device 0"));
}

TEST_CASE("a peer that is gone ends a rank on a device with 81") {
  Machine two(2);
  RunOptions pair = two.options(2);
  const auto use_two = pair.adjust;
  pair.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup& group) {
    use_two(rank, runtime, group);
    runtime.progress = [&group, rank](const ProgressReport& report) {
      if (report.step == 3 && rank == 1) group.lose(1);
    };
  };
  const Bench other;
  const Run lost = other.train(other.config(), pair);
  CHECK(lost.results[0].exit_code == kExitPeerLost);
  CHECK(lost.results[0].peer == 1);
}

TEST_CASE("buckets cover the layout on borders of norm blocks, the token embedding last") {
  for (const GptConfig& config : {GptConfig{1, 2, 32, 16, 256}, GptConfig{4, 4, 128, 128, 256},
                                  GptConfig{2, 2, 64, 8, 50257}}) {
    const FlatLayout layout = flat_layout(config);
    for (const std::size_t size : {std::size_t{1}, std::size_t{50'000}, std::size_t{1} << 30U}) {
      const std::vector<Bucket> buckets = cut_buckets(layout, {size / 2, size});
      std::size_t at = 0;
      for (const Bucket& bucket : buckets) {
        CHECK(bucket.offset == at);
        CHECK(bucket.offset % numerics::kNormBlock == 0);
        CHECK(bucket.count > 0);
        at = bucket.end();
      }
      CHECK(at == layout.size);
      CHECK(layout.tensors.back().offset - buckets.back().offset < numerics::kNormBlock);
    }
  }
}

}  // namespace muster::runtime::cuda
