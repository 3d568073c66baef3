// SPDX-License-Identifier: Apache-2.0
//
// Where a run starts from: rank 0 chooses and reads the checkpoint, everybody gets it from rank 0.
// So the other ranks need no shared storage.
//
// Thread rule: one thread; block on storage and peers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/checkpoint/checkpoint_store.h"
#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/train/config.h"

namespace muster::runtime {

// --resume. A restart within one run goes on from what the run saved itself, whatever was chosen
// for its beginning; a generation of the same run is told by the run's name.
struct ResumeChoice {
  enum class Kind : std::uint8_t {
    kAuto,  // the newest complete checkpoint in checkpoint.dir, if there is one
    kNone,  // from the beginning
    kPath,  // from `path`: a checkpoint, or a directory of them (its newest)
  };
  Kind kind = Kind::kAuto;
  std::string path;
};

// Rank 0. `store` is open, or null without checkpoint.dir. nullopt: from the beginning.
// kFailedPrecondition, kInvalidArgument, kUnimplemented: the user's to mend (exit 2), among them
// checkpoints of other runs that lie ahead of the start and would be in the way. Others: storage.
absl::StatusOr<std::optional<LoadedCheckpoint>> choose_checkpoint(
    CheckpointStore* store, FileSystem& files, const ResumeChoice& choice, const RunId& run,
    const FlatLayout& layout, const CheckpointStore::Note& note);

// All ranks: rank 0's manifest to everybody (`mine` is looked at on rank 0 only). nullopt: none.
absl::StatusOr<std::optional<Manifest>> broadcast_manifest(Collectives& group,
                                                           const Manifest* mine);
// All ranks: rank 0's tensors to everybody, in place.
absl::Status broadcast_tensors(Collectives& group, TrainTensors& tensors);

// What a checkpoint's maker had that this run has not: kFailedPrecondition where going on would
// be wrong (another model, another order of samples), else one line for people each.
struct RunFacts {
  std::string config;  // config_json
  std::uint64_t corpus_bytes = 0;
  std::uint64_t corpus_digest = 0;
  int world_size = 1;
  bool deterministic = false;
  BuildFacts build;
};
absl::StatusOr<std::vector<std::string>> compare_with(const Manifest& manifest,
                                                      const RunFacts& facts);

// Whether the scaler of the checkpoint means the same as this run's.
bool same_scaler(const std::string& config_a, const std::string& config_b);

}  // namespace muster::runtime
