// SPDX-License-Identifier: Apache-2.0
//
// Private short-lived files. One folder a `muster run` (control socket, store token), below it one
// for its workers, there one a worker (0700, its MUSTER_RUN_DIR) with its progress file, stop file
// and, until it is looked at, error.json.
//
// The job's folder is made before the process splits, and locked through a descriptor that
// guardian and agent share: while either lives the lock is held, in whatever container or pid
// namespace, and when both were killed it is free. That is how the next `muster run` knows what
// nobody needs any more.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <sys/types.h>

#include <absl/status/statusor.h>

#include "agent/shell/unique_fd.h"
#include "proto/base/ids.h"

namespace muster::agent {

// 8 hex digits that name this boot of this kernel: a lock says nothing about processes of another
// one (a file server, a virtual machine). Random where the kernel does not tell.
std::string boot_tag();

// A name that nobody has: <folder>/muster-<uid>-<boot tag><8 hex>, in $XDG_RUNTIME_DIR, $TMPDIR,
// /tmp or /dev/shm, the first that can be written. Makes nothing.
std::string choose_scratch_path(const std::map<std::string, std::string>& environment, uid_t uid);

// The folder of one `muster run`.
class JobFolder {
 public:
  // Makes one (0700) under a chosen name and locks it. Where the file system has no locks it is
  // unlocked, and nobody can lock it either: then only its owners remove it.
  static absl::StatusOr<JobFolder> make(const std::map<std::string, std::string>& environment,
                                        uid_t uid);

  const std::string& path() const { return path_; }

 private:
  JobFolder(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  UniqueFd lock_;
};

// MUSTER_STORE_TOKEN_FILE of the job's workers: in its folder.
std::string store_token_path(const std::string& job_folder);

// The control group of this job's workers, with the folder's name, and a note of it in the folder
// for whoever clears up after the dead; empty: none can be had (see job_cgroup_path).
std::string choose_job_cgroup(const std::string& job_folder);

// The end of a job: what still runs in its group is killed, group and folder are removed. Where
// something cannot be killed the folder stays, unlocked and with the note alone: a later start
// removes both, once it can.
void remove_job_folder(const std::string& job_folder, const std::string& cgroup);

struct SweepReport {
  std::size_t folders = 0;
  std::size_t killed = 0;  // processes
};

// Removes the job folders beside `own` whose guardian and agent are surely dead: of this user, of
// this boot, not locked. What still runs of those jobs is killed first (it shows the folder in
// its environment, or is in the group that is noted there). Costs one reading of the parent folder
// where there are none.
SweepReport sweep_job_folders(const std::string& own);

// Removes a job's folder or what a Scratch made. Refuses (false) any path whose last part does not
// begin with "muster-" or that is a link. A path that is not there is fine.
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
