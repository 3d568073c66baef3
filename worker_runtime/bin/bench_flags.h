// SPDX-License-Identifier: Apache-2.0
//
// The command line of muster-train bench-collectives.
#pragma once

#include <string>
#include <vector>

#include "worker_runtime/bench/sweep.h"
#include "worker_runtime/cuda/engine/device_choice.h"

namespace muster::runtime {

inline constexpr const char* kBenchCommand = "bench-collectives";

struct BenchOptions {
  SweepOptions sweep;
  cuda::DeviceWish wish;
  bool json = false;
  std::string text;  // what all ranks must have been given alike, as one line
};

// -1: go on; else the exit code: help was printed, or what is wrong was said. `arguments`: those
// after the command.
int parse_bench_flags(const std::vector<std::string>& arguments, BenchOptions& options);

}  // namespace muster::runtime
