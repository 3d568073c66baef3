// SPDX-License-Identifier: Apache-2.0
//
// Private short-lived files of workers: one folder an agent, below it one a worker (0700, its
// MUSTER_RUN_DIR) with its progress file, stop file and, until it is looked at, error.json. Made
// at the first start, removed at the end. The name is chosen before the agent exists, so that a
// guardian whose agent was killed can remove it too.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <sys/types.h>

#include <absl/status/statusor.h>

#include "proto/base/ids.h"

namespace muster::agent {

// A name that nobody has: <folder>/muster-<uid>-<16 hex>, in $XDG_RUNTIME_DIR, $TMPDIR, /tmp or
// /dev/shm, the first that can be written. Makes nothing.
std::string choose_scratch_path(const std::map<std::string, std::string>& environment, uid_t uid);

// Removes what a Scratch made. Refuses (false) any path whose last part does not begin with
// "muster-" or that is a link. A path that is not there is fine.
bool remove_scratch(const std::string& path);

// Where one worker's files are.
struct WorkerPaths {
  std::string folder;           // MUSTER_RUN_DIR
  std::string progress_file;    // MUSTER_PROGRESS_FILE
  std::string stop_file;        // MUSTER_STOP_FILE
  std::string assignment_file;  // MUSTER_ASSIGNMENT_FILE
  std::string error_file;       // TORCHELASTIC_ERROR_FILE
};

class Scratch {
 public:
  explicit Scratch(std::string path);
  ~Scratch();  // removes everything
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Makes the folder of one worker; nothing in it yet.
  absl::StatusOr<WorkerPaths> make_worker(Generation generation, std::uint32_t local_rank);
  // Removes one worker's folder with everything in it.
  void remove_worker(const WorkerPaths& paths);
  void remove_all();

 private:
  std::string path_;
  bool made_ = false;
};

}  // namespace muster::agent
