// SPDX-License-Identifier: Apache-2.0
//
// FENCE: who may publish into a checkpoint directory. A generation writes its name into it before
// it reads anything; a writer looks just before it publishes. So a rank 0 that was cut off, wakes
// up and finishes its save finds a newer name and throws its work away.
//
// Thread rule: free functions; block on the storage.
#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "proto/base/ids.h"
#include "worker_runtime/checkpoint/file_system.h"

namespace muster::runtime {

struct Fence {
  RunId run;
  Generation generation = kNoGeneration;
  bool operator==(const Fence&) const = default;
};

// "run R, generation G", for messages.
std::string describe(const Fence& fence);

// What stands in DIRECTORY/FENCE; nullopt if there is none. kDataLoss: it does not read.
absl::StatusOr<std::optional<Fence>> read_fence(FileSystem& files, const std::string& directory);

// Puts `mine` there. Another run's fence gives way; the same run's gives way only to an equal or
// higher generation: kAborted otherwise, naming it. A fence that does not read is replaced.
absl::Status raise_fence(FileSystem& files, const std::string& directory, const Fence& mine,
                         const std::string& nonce);

// kAborted unless the fence is still `mine`.
absl::Status check_fence(FileSystem& files, const std::string& directory, const Fence& mine);

}  // namespace muster::runtime
