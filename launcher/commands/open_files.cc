// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/open_files.h"

#include <algorithm>
#include <cstdlib>
#include <dirent.h>
#include <string>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

// Measured: 17 for a job of its own, 22 with sockets, and some for what comes and goes.
constexpr std::uint64_t kOwn = 32;
constexpr std::uint64_t kStandard = 3;  // of these: input, output and errors
// Process, two pipes, progress file, two logs; a connection to the store and the ends of a start.
constexpr std::uint64_t kWorker = 7;
// A node's stream and its next one while the last is not yet closed; with TLS three each.
constexpr std::uint64_t kNode = 6;

}  // namespace

std::uint64_t open_files_needed(std::uint32_t slots) {
  return kOwn + kWorker * slots;
}

// The limit is on their numbers: the highest counts.
std::uint64_t open_files_inherited() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::uint64_t taken = kStandard;
  while (const dirent* entry = ::readdir(folder)) {
    const int number = std::atoi(entry->d_name);
    if (number != ::dirfd(folder)) taken = std::max<std::uint64_t>(taken, number + 1);
  }
  ::closedir(folder);
  return taken - kStandard;
}

absl::Status check_open_files(std::uint32_t slots, std::uint64_t inherited, const rlimit& limit) {
  const std::uint64_t needed = open_files_needed(slots);
  if (needed + inherited <= limit.rlim_max) return absl::OkStatus();
  const std::string beside = inherited > 0 ? cat(" beside those it was started with, up to number ",
                                                 inherited + kStandard - 1)
                                           : "";
  return absl::ResourceExhaustedError(cat(slots, " workers need ", needed, " open files", beside,
                                          ", the limit here is ", limit.rlim_max, " (ulimit -Hn)"));
}

void raise_open_files(std::uint32_t slots, std::uint32_t nodes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const std::uint64_t wanted = open_files_inherited() + open_files_needed(slots) + kNode * nodes;
  if (wanted <= limit.rlim_cur) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace muster::launcher
