// SPDX-License-Identifier: Apache-2.0
//
// Starting one program, without copying the agent's memory: clone(CLONE_VM | CLONE_PIDFD) on a
// stack of its own; see spawn_child.h for what runs there until exec. The child shares our memory,
// so the reason of a failed exec comes back in a plain struct and is never mistaken for exit code
// 127.
//
// The caller goes on while the kernel loads the program's image on another processor: whoever
// starts many begins all of them before it waits for the first.
//
// Thread rule: call from the thread that never ends: the parent-death signal follows the thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/shell/signals.h"
#include "agent/shell/unique_fd.h"
#include "proto/base/time.h"

namespace muster::agent {

// Descriptors of the child's 0, 1 and 2, borrowed for the call; -1: /dev/null.
struct StdioPlan {
  int in = -1;
  int out = -1;
  int err = -1;
};

struct SpawnRequest {
  std::string program;            // path handed to execve; no search happens here
  std::vector<std::string> argv;  // argv[0] is what the program sees
  std::map<std::string, std::string> environment;
  StdioPlan stdio;
  StartingState start;          // mask, dispositions, umask, limits to restore
  std::vector<int> processors;  // that it may use; empty: as we
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

// One start under way.
class Spawn {
 public:
  // In its own session (so its pid is its process group and session too), with SIGKILL as
  // parent-death signal and descriptors 0 to 2 only. The request's descriptors are free at once.
  static std::unique_ptr<Spawn> begin(const SpawnRequest& request);
  // Waits for a moment at most: what a child still uses then stays.
  ~Spawn();
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  // -1: there is no process, and finish() knows why.
  pid_t pid() const;
  bool in_cgroup() const;
  // Once; what finish() would give.
  UniqueFd take_pidfd();
  // Until the program's image is loaded, or cannot be (about half a millisecond after begin; as
  // long as the file server likes, or whoever stopped the child); at most `limit`. Whether it is.
  bool wait(std::optional<Duration> limit = std::nullopt);
  // Waits, and gives the result, once. A child that could not exec is already reaped then.
  SpawnResult finish();

 private:
  struct State;
  explicit Spawn(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// From begin to finish.
SpawnResult spawn(const SpawnRequest& request);

}  // namespace muster::agent
