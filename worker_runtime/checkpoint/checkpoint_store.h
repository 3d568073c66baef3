// SPDX-License-Identifier: Apache-2.0
//
// A directory of checkpoints. One is either complete and verified or not there:
//
//   1. step-<n>.tmp-g<generation>-<nonce>/ gets its chunk files, then manifest.json; each is
//      synced, then the directory;
//   2. FENCE is read: a newer generation means that this work is thrown away;
//   3. the directory is renamed to step-<n>/ and the parent synced. This is the moment;
//   4. LATEST, a hint for people, is replaced; old checkpoints and left-overs are removed.
//
// A crash at any instant leaves the earlier checkpoints untouched. A complete step-<n> that is
// already there is never replaced. What does not verify is never used, and named.
//
// Only rank 0 has one of these. Thread rule: one thread at a time; blocks on the storage.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/checkpoint/fence.h"
#include "worker_runtime/checkpoint/file_system.h"
#include "worker_runtime/checkpoint/manifest.h"
#include "worker_runtime/checkpoint/train_tensors.h"

namespace muster::runtime {

struct LoadedCheckpoint {
  std::string path;
  Manifest manifest;
  TrainTensors tensors;
};

class CheckpointStore {
 public:
  struct Options {
    std::string directory;
    std::int64_t keep = 3;   // newest checkpoints that stay; 0: all
    Fence fence = {};        // run and generation that this process speaks for
    std::string nonce = {};  // makes this process's temporary names its own
    std::uint64_t chunk_elements = std::uint64_t{1} << 24U;  // 64 MiB a file
    std::size_t write_bytes = std::size_t{4} << 20U;         // a write call, at most
  };
  using Note = std::function<void(const std::string&)>;  // one line for people

  CheckpointStore(FileSystem& files, Options options, Note note);

  // Makes the directory and raises the fence. Call before anything else. kAborted: a newer
  // generation of this run has been here.
  absl::Status open();

  // Steps whose manifest reads, highest first; files are not verified. Names in a note what is
  // there but unfinished or broken.
  struct Found {
    std::uint64_t step = 0;
    RunId run;
  };
  absl::StatusOr<std::vector<Found>> list();

  // The newest checkpoint that verifies (of `run` only, if given); nullopt: none. Names in a note
  // every one that was passed over. kFailedPrecondition: it is of another model; kUnimplemented:
  // of a newer version. An error of the storage itself is returned as it is: taking an older
  // checkpoint because a disk hiccuped would throw work away.
  absl::StatusOr<std::optional<LoadedCheckpoint>> load_newest(const FlatLayout& layout,
                                                              std::optional<RunId> run = {});

  // The checkpoint in directory `path`. kDataLoss: incomplete; others as above.
  absl::StatusOr<LoadedCheckpoint> load(const std::string& path, const FlatLayout& layout);

  // Publishes; fills in run, generation, tensors, chunks and hashes. Returns false where a
  // complete step of that number was there already (ours is thrown away). kAborted: fenced off.
  absl::StatusOr<bool> save(Manifest manifest, const FlatLayout& layout,
                            const TrainTensors& tensors);

  // A file in the directory that every rank should be able to read if the storage is shared.
  std::string probe_path() const;
  absl::Status write_probe();
  void remove_probe();

 private:
  // What a checkpoint is passed over for: a part of it is missing, has other contents, is no file,
  // or may not be read.
  static bool is_incomplete(const absl::Status& status);
  std::string path_of(const std::string& name) const { return options_.directory + "/" + name; }
  absl::Status write_step(const std::string& path, Manifest& manifest, const FlatLayout& layout,
                          const TrainTensors& tensors);
  absl::StatusOr<Chunk> write_chunk(const std::string& path, const std::string& kind, int index,
                                    std::uint64_t first, std::span<const float> data);
  absl::Status write_stream(const std::string& path, const std::string& kind,
                            const FlatLayout& layout, std::span<const float> data,
                            std::vector<Chunk>& chunks);
  absl::Status write_file(const std::string& path, std::span<const std::byte> bytes);
  absl::StatusOr<Manifest> read_manifest(const std::string& path);
  absl::StatusOr<std::vector<std::byte>> read_chunk(const std::string& path, const Chunk& chunk);
  absl::Status verify(const std::string& path);
  absl::StatusOr<bool> publish(const std::string& from, const std::string& name);
  void tidy(std::uint64_t published);
  absl::Status remove_old(std::uint64_t published);

  FileSystem& files_;
  Options options_;
  Note note_;
  std::vector<std::string> stale_;  // temporary names that were there when the fence was raised
};

}  // namespace muster::runtime
