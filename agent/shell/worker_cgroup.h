// SPDX-License-Identifier: Apache-2.0
//
// Control groups of version 2 for workers, where this user may make them: below the group that this
// process is in one for the job, below that one a worker. Nothing that a worker starts leaves its
// group, whatever becomes of session, parent and environment, and the kernel kills a group in one
// stroke (cgroup.kill), however fast it forks. It is one more rung: the process tree is swept all
// the same, as most containers and most hosts do not let a user make groups.
//
// No controller is enabled in these groups, so what limits and counts is the group above, as
// before, and processes beside child groups are allowed. Only groups made here are killed and
// removed: the job's has a name that nobody else has (that of its folder).
//
// Thread rule: any thread; only plain calls, safe in the guardian.
#pragma once

#include <memory>
#include <string>
#include <sys/types.h>
#include <utility>

#include "agent/shell/unique_fd.h"
#include "proto/base/time.h"

namespace muster::agent {

// Where the job's group would be: <mount>/<own group>/<name>. Empty: there is no such hierarchy, or
// this process's own group is not found in it, or nothing may be made there. Makes nothing.
// `root`: where control groups are mounted, itself version 2 or with it at "unified".
std::string job_cgroup_path(const std::string& name, const std::string& proc = "/proc",
                            const std::string& root = "/sys/fs/cgroup");

// Kills what is left in the job's group and below, waits `limit` at most until it is gone, and
// removes the groups. False: something is still there. A group that is not there is fine.
bool remove_job_cgroup(const std::string& job_group, Duration limit);

// What /proc says of a process's groups; empty: it is gone.
std::string control_groups_of(pid_t pid);

// The group of one worker's life.
class WorkerCgroup {
 public:
  // Makes <job_group>/<name>, and the job's group if need be. nullptr: it cannot be had, or not
  // killed (before Linux 5.14), or takes no processes (below a threaded group).
  static std::shared_ptr<WorkerCgroup> make(const std::string& job_group, const std::string& name);
  // Removes it; where something lives in it, it stays for remove_job_cgroup.
  ~WorkerCgroup();
  WorkerCgroup(const WorkerCgroup&) = delete;
  WorkerCgroup& operator=(const WorkerCgroup&) = delete;

  // For SpawnRequest::cgroup.
  UniqueFd open() const;
  // SIGKILL to everything in it.
  void kill() const;
  // Whether a process with these control_groups_of it is in it, or in a group below it.
  bool is_among(const std::string& groups) const;
  const std::string& path() const { return path_; }

 private:
  explicit WorkerCgroup(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace muster::agent
