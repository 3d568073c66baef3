// SPDX-License-Identifier: Apache-2.0
//
// A key-value store in a directory, in place of the launcher's: a key is a file, written whole.
//
// Thread rule: thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "worker_runtime/cuda/nccl_meeting.h"

namespace muster::runtime::cuda::gpu_check {

class DirectoryStore final : public GenerationStore {
 public:
  explicit DirectoryStore(std::string directory) : directory_(std::move(directory)) {}

  absl::Status set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> get(const std::string& key, Duration wait) override;
  // Of one process: counters are not shared.
  absl::StatusOr<std::int64_t> add(const std::string& key, std::int64_t delta) override;

 private:
  std::string path_of(const std::string& key) const;
  absl::StatusOr<std::string> read(const std::string& key) const;
  absl::Status write(const std::string& key, const std::string& value);

  std::string directory_;
  std::mutex mutex_;
};

}  // namespace muster::runtime::cuda::gpu_check
