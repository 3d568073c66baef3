// SPDX-License-Identifier: Apache-2.0
//
// The process tree below a process, read from /proc, and killing it without hitting strangers.
// With a child subreaper at the root the tree is complete: a descendant cannot leave it.
//
// Thread rule: any thread; nothing is shared. Only plain calls, safe in the guardian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "proto/base/time.h"

namespace muster::agent {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  // As in /proc/<pid>/stat: R S D T Z … Of a process whose first thread has ended while another
  // lives (it cannot be reaped, and shows as a zombie) the state of one that lives.
  char state = '?';
  bool exiting = false;          // its environment may be gone, its children not yet handed on
  std::uint64_t start_time = 0;  // clock ticks since boot: with pid, names one process
};

// Names one process: no other has both.
using ProcessKey = std::pair<pid_t, std::uint64_t>;
inline ProcessKey key_of(const ProcessInfo& process) {
  return {process.pid, process.start_time};
}

// How often this thread could not look for want of descriptors or memory. What it looked for in the
// meantime may be there although it was not found; callers compare before and after.
std::uint64_t missed_looks();

// Descriptors kept back for looking when no other is left. Call once, early: they must have low
// numbers, below any limit that is set later.
void reserve_looks();

// nullopt: there is no such process (any more).
std::optional<ProcessInfo> read_process(pid_t pid);

// Direct children, zombies too.
std::vector<pid_t> children_of(pid_t pid);

// Everything below `root`, zombies too, less the subtrees under a pid of `except`.
std::vector<ProcessInfo> descendants_of(pid_t root, const std::set<pid_t>& except = {});

// What it runs, as `ps` would show it, control characters as '?'; empty: not to be had.
std::string command_of(pid_t pid);

// The first entry "NAME=value" of that name in the environment that `pid` was started with.
// nullopt: there is none, or it is not readable.
std::optional<std::string> environment_entry(pid_t pid, const std::string& name);

// Kills every process of this user that was started with the entry "NAME=value", again while there
// is a new one; returns how many. For processes that have lost all their ancestors: reads all of
// /proc.
std::size_t kill_all_with_entry(const std::string& entry);

// Sends `signal` to exactly this process; false where it is gone. Safe against reuse of its pid.
bool signal_process(const ProcessInfo& process, int signal);

// What one call of kill_all_below left alive.
struct KillReport {
  std::vector<ProcessInfo> survivors;
  bool blind = false;  // it could not look; there may be more
};

// Kills everything below the calling process, `except` and below left out, and reaps what becomes
// a child of it, until nothing is left or `limit` has passed. Of `given_up` somebody has waited for
// the end already: when nothing else is left they have a last quarter of a second. Blocks.
// REQUIRES: the caller is a child subreaper and nobody else waits for these children.
KillReport kill_all_below_self(Duration limit, const std::set<pid_t>& except = {},
                               const std::set<ProcessKey>& given_up = {});

}  // namespace muster::agent
