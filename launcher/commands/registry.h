// SPDX-License-Identifier: Apache-2.0
//
// This user's live jobs on this host: one small file a `muster run`, in the state directory, so
// that `muster status` and `muster stop` need no address. The process holds a lock on its file:
// a file without one is of a dead process and is removed by whoever finds it. (A pid would say
// nothing: the directory may be shared with other pid namespaces and other hosts.)
//
// Thread rule: any thread; several processes may use it at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "agent/shell/unique_fd.h"
#include "launcher/commands/options.h"
#include "proto/base/ids.h"

namespace muster::launcher {

struct LiveJob {
  JobId job;
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::string socket;      // control socket; empty: this process does not host the server
  std::string rendezvous;  // "host:port"; empty: reachable through the socket only
  NodeName node;
  bool operator==(const LiveJob&) const = default;
};

// "<state directory>/.live".
std::string registry_path(const EnvironmentMap& environment);

// Writes this process's file (0600, by rename) and removes it when destroyed.
class LiveEntry {
 public:
  LiveEntry() = default;
  ~LiveEntry();
  LiveEntry(const LiveEntry&) = delete;
  LiveEntry& operator=(const LiveEntry&) = delete;

  // May be called again with news. An error means only that nobody finds this job by itself.
  absl::Status publish(const std::string& directory, const LiveJob& job);

 private:
  std::string path_;
  agent::UniqueFd lock_;
};

// All live ones of this host, by job id; of several processes of one job, one that hosts the
// server where there is one. Files of dead processes are removed; unreadable ones are skipped.
std::vector<LiveJob> live_jobs(const std::string& directory);

// Removes the files of dead processes, half-written ones too.
void sweep_registry(const std::string& directory);

}  // namespace muster::launcher
