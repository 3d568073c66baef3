// SPDX-License-Identifier: Apache-2.0
//
// muster-train bench-collectives: one rank of a benchmark of the job's all-reduce, from its options
// to its exit code. What is measured and how: bench/sweep.h.
//
// Thread rule: one call a process, from its first thread.
#pragma once

#include "worker_runtime/bin/bench_flags.h"
#include "worker_runtime/bin/rank_process.h"
#include "worker_runtime/cuda/engine/libraries.h"

namespace muster::runtime {

// Blocks until the ranks are done. What went wrong was said.
int run_bench_collectives(RankProcess& process, const cuda::DeviceLibraries& libraries,
                          const BenchOptions& options);

}  // namespace muster::runtime
