// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a group as processes of one host, joined pair by pair by sockets that whoever
// started them made. A peer whose process ends is gone at once: its sockets close.
//
// Thread rule: as collectives.h says.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime::cuda::gpu_check {

// sockets[rank] is the one to that rank (own: any), stream sockets, taken over. `deadline` bounds
// the time without progress.
std::unique_ptr<Collectives> make_socket_group(int rank, std::vector<int> sockets,
                                               std::int64_t generation,
                                               std::chrono::milliseconds deadline);

// sockets[a][b]: rank a's end of the pair {a, b}; empty: the system has none left. Close on exec.
std::vector<std::vector<int>> make_sockets(int size);

}  // namespace muster::runtime::cuda::gpu_check
