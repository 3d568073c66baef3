// SPDX-License-Identifier: Apache-2.0
//
// From libraries and a wish to an engine, as muster-train goes.
#include "worker_runtime/cuda/engine/device_setup.h"

#include <array>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/fake_cuda/blas.h"
#include "tests/unit/cuda/nccl_ranks.h"
#include "tests/unit/training/training_runs.h"

namespace muster::runtime::cuda {
namespace {

struct Counting : Overseer {
  void collective_begins() override { ++begun; }
  int begun = 0;
};

// How often a rank's overseer was told of a collective, in a whole run.
int collectives_of(const std::string& buckets) {
  const test::Bench bench;
  FakeDriver driver({.devices = 2});
  std::array<Counting, 2> overseers;
  test::RunOptions options;
  options.ranks = 2;
  options.adjust = [&](int rank, TrainRuntime& runtime, LocalGroup&) {
    const DeviceLibraries libraries{
        .driver = [&] { return driver.api(); },
        .blas = [] { return fake_blas(); },
        .nccl = []() -> absl::StatusOr<NcclApi> { return absl::NotFoundError("none here"); },
        .images = FakeDriver::images};
    DeviceWish wish;
    wish.device = DeviceChoice::kCuda;
    wish.backend = "staged";
    const DeviceSetup setup =
        must(set_up_device(libraries, {.wish = wish, .group = &runtime.group, .local_rank = rank}));
    MUSTER_CHECK(setup.on_device);
    runtime.make_engine = setup.make_engine;
    runtime.overseer = &overseers.at(static_cast<std::size_t>(rank));
  };
  const test::Run run = bench.train(
      bench.config({"steps=2", "model.n_embd=64", "parallel.first_bucket_mb=0.01", buckets}),
      options);
  INFO(run.first().message);
  CHECK(run.first().exit_code == kExitDone);
  return overseers[0].begun;
}

}  // namespace

TEST_CASE("the exchange over host memory is watched like every other collective") {
  const int few = collectives_of("parallel.bucket_mb=32");
  const int many = collectives_of("parallel.bucket_mb=0.01");
  // Two a bucket and step.
  CHECK(many > few);
}

}  // namespace muster::runtime::cuda
