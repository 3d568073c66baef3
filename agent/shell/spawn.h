// SPDX-License-Identifier: Apache-2.0
//
// Starting one program, without copying the agent's memory: clone(CLONE_VM | CLONE_VFORK |
// CLONE_PIDFD) on a stack of its own. Between clone and exec only async-signal-safe calls run;
// the child shares our memory, so the reason of a failed exec comes back in a plain struct and is
// never mistaken for exit code 127.
//
// Thread rule: call from the thread that never ends: the parent-death signal follows the thread.
// Blocks until the program image is loaded (about half a millisecond).
#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/shell/signals.h"
#include "agent/shell/unique_fd.h"

namespace muster::agent {

// Descriptors of the child's 0, 1 and 2, borrowed for the call; -1: /dev/null.
struct StdioPlan {
  int in = -1;
  int out = -1;
  int err = -1;
  // `out` is a terminal to become the controlling one of the new session.
  bool controlling_terminal = false;
};

struct SpawnRequest {
  std::string program;            // path handed to execve; no search happens here
  std::vector<std::string> argv;  // argv[0] is what the program sees
  std::map<std::string, std::string> environment;
  StdioPlan stdio;
  StartingState start;  // mask, dispositions, umask, limits to restore
  // The folder of a control group of version 2 to start in, borrowed for the call; -1: in ours. A
  // group that cannot be entered (or a kernel before 5.7) is no failure: see
  // SpawnResult::in_cgroup.
  int cgroup = -1;
};

// Exactly one of `pid > 0` and `error != 0`.
struct SpawnResult {
  pid_t pid = -1;
  UniqueFd pidfd;
  bool in_cgroup = false;
  int error = 0;       // errno
  std::string detail;  // what failed and why: "./train.py: Permission denied"

  bool ok() const { return pid > 0; }
};

// Starts the program in its own session (so its pid is its process group and session too), with
// SIGKILL as parent-death signal and descriptors 0 to 2 only. A child that could not exec is
// already reaped when this returns.
SpawnResult spawn(const SpawnRequest& request);

}  // namespace muster::agent
