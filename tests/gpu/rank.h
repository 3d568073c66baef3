// SPDX-License-Identifier: Apache-2.0
//
// One rank of the section of ranks, a process of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker_runtime/model/gpt.h"

namespace muster::runtime::cuda::gpu_check {

// What its command line says.
struct RankOrder {
  int rank = 0;
  std::vector<int> sockets;  // to each rank; its own: -1
  std::int64_t generation = 0;
  Precision precision = Precision::kF32;
  std::uint64_t steps = 0;       // of the run
  std::uint64_t save_every = 1;  // rank 0 does
  std::string folder;            // of the run: states, and what it goes on from
  int says = -1;                 // descriptor for lines: "1 step 5", "0 end 1a2b…", "2 error …"
  bool on_fakes = false;
};
std::vector<std::string> command_of(const std::string& program, const RankOrder& order);

// Exit codes: 0, or those of muster-train (81: a peer is gone, 85: the device).
int run_rank(int argc, char** argv);

}  // namespace muster::runtime::cuda::gpu_check
