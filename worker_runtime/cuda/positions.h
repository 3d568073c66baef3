// SPDX-License-Identifier: Apache-2.0
//
// Where each rank was when one of them failed. NCCL only says that a collective does not end; the
// ranks together can say why: one did not come to it, one came with something else, one does not
// answer at all.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "proto/base/time.h"
#include "worker_runtime/cuda/nccl_api.h"

namespace muster::runtime::cuda {

enum class NcclOperation : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

struct CollectiveRecord {
  std::uint64_t sequence = 0;  // from 1; 0: none
  NcclOperation operation = NcclOperation::kAllReduce;
  int type = kNcclF32;
  std::uint64_t count = 0;
  Instant enqueued = {};
  bool launched = false;  // it is on the stream
};
// "all-reduce 17 (f32 x 4096)".
std::string record_text(const CollectiveRecord& record);

struct Position {
  std::uint64_t enqueued = 0;  // so many collectives
  CollectiveRecord oldest;     // that has not ended
};
std::string position_line(const Position& position);
absl::StatusOr<Position> read_position_line(const std::string& line);

struct Findings {
  std::string text;       // for people; empty: nothing was found
  bool mismatch = false;  // ranks came to one collective with different operations, types or counts
  int silent = -1;        // the only rank that does not answer
};
// Of all ranks' positions, in rank order; nullopt: no answer. `mine` is what this rank waits for.
Findings compare_positions(int rank, const CollectiveRecord& mine,
                           const std::vector<std::optional<Position>>& all);

}  // namespace muster::runtime::cuda
