// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/open_files.h"

#include <algorithm>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

// Measured: 17 for a job of its own, 22 with sockets, and some for what comes and goes.
constexpr std::uint64_t kOwn = 32;
// Process, two pipes, progress file, two logs; a connection to the store and the ends of a start.
constexpr std::uint64_t kWorker = 7;
// A node's stream and its next one while the last is not yet closed.
constexpr std::uint64_t kNode = 2;

}  // namespace

std::uint64_t open_files_needed(std::uint32_t slots) {
  return kOwn + kWorker * slots;
}

absl::Status check_open_files(std::uint32_t slots, const rlimit& limit) {
  const std::uint64_t needed = open_files_needed(slots);
  if (needed <= limit.rlim_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(cat(slots, " workers need ", needed,
                                          " open files, the limit here is ", limit.rlim_max,
                                          " (ulimit -Hn)"));
}

void raise_open_files(std::uint32_t slots, std::uint32_t nodes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const std::uint64_t wanted = open_files_needed(slots) + kNode * nodes;
  if (wanted <= limit.rlim_cur) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace muster::launcher
