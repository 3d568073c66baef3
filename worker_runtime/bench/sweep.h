// SPDX-License-Identifier: Apache-2.0
//
// All-reduce after all-reduce over a range of sizes: how long each takes and whether its results
// are right.
//
// Each iteration starts from fresh numbers, put there outside of the time that counts; the
// all-reduce before it has brought the ranks together. A rank's time is the median over the
// iterations, a size's the slowest rank's. The results of the last iteration are checked, on every
// rank, every number.
//
// Thread rule: one thread; all ranks call with the same options.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <absl/status/statusor.h>

#include "worker_runtime/bench/figures.h"
#include "worker_runtime/bench/target.h"
#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/train/trainer.h"

namespace muster::runtime {

struct SweepOptions {
  std::vector<std::uint64_t> counts;  // numbers, size after size
  WireType type = WireType::kF32;
  int iterations = 20;  // > 0
  int warmup = 5;
};

// Of one size, the same on every rank.
struct SweepRow {
  std::uint64_t bytes = 0;  // of the type that travels
  std::uint64_t count = 0;
  WireType type = WireType::kF32;
  double time_us = 0;
  Bandwidth bandwidth = {};  // GB/s
  std::uint64_t wrong = 0;   // results, on all ranks together
};

struct SweepResult {
  std::vector<SweepRow> rows;
  std::vector<std::uint64_t> wrong;  // by rank, over all sizes
  bool stopped = false;              // all ranks ended early, since one was asked to stop
  double mean_bus() const;           // GB/s, over the sizes
  std::uint64_t all_wrong() const;
};

// Errors: the target's and the group's.
absl::StatusOr<SweepResult> run_sweep(Collectives& group, SumTarget& target,
                                      const SweepOptions& options, Overseer& overseer,
                                      const std::function<void(const SweepRow&)>& on_row);

}  // namespace muster::runtime
