// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of one generation get ready for NCCL: everybody's facts are checked before the
// library is asked for anything, then ids are made and handed out. Through the launcher's store,
// under keys that carry the generation; nothing of one generation is ever used in another.
//
// Thread rule: blocks on the store; one call at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "proto/base/time.h"
#include "worker_runtime/cuda/compatibility.h"
#include "worker_runtime/cuda/nccl_api.h"

namespace muster::runtime::cuda {

// The launcher's key-value store, or anything that behaves like it. Thread-safe.
class GenerationStore {
 public:
  virtual ~GenerationStore() = default;
  virtual absl::Status set(const std::string& key, const std::string& value) = 0;
  // Waits for the key; kNotFound: it did not appear within `wait`.
  virtual absl::StatusOr<std::string> get(const std::string& key, Duration wait) = 0;
  // Adds to the number under the key (missing: 0) and gives the sum.
  virtual absl::StatusOr<std::int64_t> add(const std::string& key, std::int64_t delta) = 0;
};

// "nccl/3/failed": where the first rank to fail in generation 3 leaves its reason.
std::string nccl_key(std::int64_t generation, const std::string& name);

struct Meeting {
  int rank = 0;
  int size = 1;
  std::int64_t generation = 0;
  Duration deadline = 5min;
};

// Ranks that share an id: contiguous blocks, the longer ones first, as NCCL itself deals ranks to
// ids. One block up to kRanksAnId ranks, or where the library cannot take more.
inline constexpr int kRanksAnId = 256;
int id_count(int size, bool scalable);
int first_rank_of_block(int size, int blocks, int block);

// Publishes `mine` and waits for the verdict of rank 0, which reads all. kFailedPrecondition: the
// ranks do not fit together (the line of check_ranks, on every rank); kDeadlineExceeded: naming a
// rank that did not come; the store's own errors.
absl::Status compare_ranks(GenerationStore& store, const Meeting& meeting, const RankFacts& mine);

// The generation's ids, the same on every rank. The first rank of each block makes one.
// kDeadlineExceeded names the rank whose id did not come; kFailedPrecondition: this generation has
// had its communicator.
absl::StatusOr<std::vector<NcclId>> share_ids(const NcclApi& api, GenerationStore& store,
                                              const Meeting& meeting);

}  // namespace muster::runtime::cuda
