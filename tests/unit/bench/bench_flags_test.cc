// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/bench_flags.h"

#include <catch2/catch.hpp>

#include "worker_runtime/train/trainer.h"

namespace muster::runtime {

TEST_CASE("without options it is a sweep from 8 bytes to 128 MiB") {
  BenchOptions options;
  REQUIRE(parse_bench_flags({}, options) == -1);
  CHECK(options.sweep.counts.front() == 2);
  CHECK(options.sweep.counts.back() == 33554432);
  CHECK(options.sweep.iterations == 20);
  CHECK(options.sweep.warmup == 5);
  CHECK(options.sweep.type == WireType::kF32);
  CHECK(options.wish.device == DeviceChoice::kAuto);
  CHECK(options.wish.backend == "auto");
  CHECK(options.wish.backend_name == "--backend");
  CHECK_FALSE(options.json);
}

TEST_CASE("options are taken, with dashes or underscores") {
  BenchOptions options;
  REQUIRE(parse_bench_flags(
              {"--min_bytes=1K", "--max-bytes", "4k", "--factor", "4", "--json", "--dtype", "bf16",
               "--iterations", "3", "--warmup", "0", "--device", "cuda", "--backend", "staged"},
              options) == -1);
  CHECK(options.sweep.counts == std::vector<std::uint64_t>{512, 2048});
  CHECK(options.sweep.type == WireType::kBf16);
  CHECK(options.sweep.iterations == 3);
  CHECK(options.sweep.warmup == 0);
  CHECK(options.wish.device == DeviceChoice::kCuda);
  CHECK(options.wish.backend == "staged");
  CHECK(options.json);
  BenchOptions others;
  REQUIRE(parse_bench_flags({}, others) == -1);
  CHECK(options.text != others.text);
}

TEST_CASE("what makes no sense is refused") {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"--min-bytes", "8X"},
                             {"--max-bytes", "2048G"},
                             {"--min-bytes", "3"},
                             {"--min-bytes", "1", "--dtype", "bf16"},
                             {"--min-bytes", "1M", "--max-bytes", "1K"},
                             {"--factor", "1"},
                             {"--factor", "x"},
                             {"--iterations", "0"},
                             {"--warmup=-1"},
                             {"--dtype", "int8"},
                             {"--device", "tpu"},
                             {"--backend", "mpi"},
                             {"--backend", "nccl", "--device", "cpu"},
                             {"--backend", "tcp", "--device", "cuda"},
                             {"--no-such"},
                             {"surplus"},
                             {"--max-bytes"}}) {
    INFO(words.front());
    BenchOptions options;
    CHECK(parse_bench_flags(words, options) == kExitConfiguration);
  }
}

}  // namespace muster::runtime
