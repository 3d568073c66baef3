// SPDX-License-Identifier: Apache-2.0
//
// Workers as processes: started, signalled, watched, and waited for until nothing of them is left.
//
// The agent is a child subreaper, so every descendant of a worker stays below the agent, however
// it daemonises. A worker's zombie is kept until its whole tree is gone: as long as it is there
// neither its pid, nor its process group, nor its session can be reused, and a signal to the group
// cannot hit a stranger.
//
// Invariants:
//   1. a worker's status is read by its WorkerProcess alone, once; orphans by the Supervisor;
//   2. callbacks come in the order spawned, ended, gone (or ended alone with kExecFailed, then
//      gone); `unkillable` at most once, before gone;
//   3. `gone` means: leader reaped, and no member of its group or session and no descendant lives;
//   4. no callback is made from inside a call of these classes.
//
// Thread rule: io thread only, the one that never ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent.h"
#include "agent/shell/spawn.h"
#include "agent/shell/worker_cgroup.h"
#include "proto/base/job.h"
#include "proto/base/time.h"

namespace muster::agent {

// How a leader ended.
struct WorkerExit {
  pid_t pid = 0;      // 0: it never started
  ExitStatus status;  // kExecFailed: value is errno, detail the reason in words
  int wait_code = 0;  // CLD_EXITED, CLD_KILLED, CLD_DUMPED; 0 for kExecFailed
  int wait_status = 0;
  std::uint64_t order = 0;  // rises over all workers of the Supervisor: who ended first
  bool unasked = false;     // nobody had asked for it: see WorkerProcess::expect_end
  // How long ago its failure began: since the end was seen, and before that as it says itself.
  Duration failing{0};
  // How long ago its last words on stderr came; nullopt: none lately.
  std::optional<Duration> spoke;
  Duration run{0};
  std::uint64_t max_rss_bytes = 0;
};

struct WorkerRequest {
  SpawnRequest spawn;
  // "NAME=value" from its environment that no other worker has, MUSTER_RUN_DIR's: it tells whose
  // a process is that left the worker's session and lost its parent.
  std::string marker;
  // Where it lives and dies, where groups can be had; see worker_cgroup.h.
  std::shared_ptr<WorkerCgroup> cgroup;
};

struct WorkerCallbacks {
  std::function<void(pid_t)> spawned;  // exec succeeded
  std::function<void(const WorkerExit&)> ended;
  std::function<void()> gone;
  // Something of it outlives SIGKILL (uninterruptible sleep): the pid and its state, "D".
  std::function<void(pid_t, std::string)> unkillable;
  // Asked, not told: for how long it has been failing, as it says itself; may be empty.
  std::function<std::optional<Duration>()> failing;
  // The same: when it last wrote to stderr, as far as that was read.
  std::function<std::optional<Instant>()> last_words;
  // The same: the end of what it wrote there, with what its pipe holds.
  std::function<std::string()> stderr_tail;
};

class WorkerProcess;

// Owns what the workers share: the subreaper role, orphans, the order of endings.
class Supervisor {
 public:
  // Makes this process a child subreaper. REQUIRES: SIGCHLD is blocked (take_signals), and nobody
  // else reads it. Children that exist already are left alone, those of their descent too.
  explicit Supervisor(boost::asio::io_context& io);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts a worker. Success and failure both come as callbacks.
  std::unique_ptr<WorkerProcess> start(const WorkerRequest& request, WorkerCallbacks callbacks);

  // Whether workers of the same job run under other Supervisors; see agent/core/end_order.h.
  void set_peers_elsewhere(bool peers);
  // How long SIGKILL may take before `unkillable` where signal() does not say, and how long the end
  // of a Supervisor waits for what still lives then. 5 s unless a test is in a hurry.
  void set_kill_limit(Duration limit);

 private:
  friend class WorkerProcess;  // its State needs ours
  struct State;
  std::shared_ptr<State> state_;
};

// One started worker. Destroying one that lives kills it with all its descent; the Supervisor
// reaps what is left. No callback comes after that.
class WorkerProcess {
 public:
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends `signal` to the leader, its group, or everything below it. SIGKILL is repeated until
  // nothing in `scope` is left, or reported as unkillable after `patience`; a later call may only
  // bring that nearer. What was given up on is waited for by nobody again. No effect once gone.
  void signal(int signal, SignalScope scope, std::optional<Duration> patience = std::nullopt);

  // Somebody asks for its end: it says nothing about that of others.
  void expect_end();

  pid_t pid() const;   // 0: it never started
  bool alive() const;  // the leader runs
  bool gone() const;
  // Nobody has asked for its end, and it is failing, as it says itself.
  bool failing() const;
  // Pids below this worker that are not its leader, at this moment.
  std::vector<pid_t> descendants() const;

 private:
  friend class Supervisor;
  struct State;
  explicit WorkerProcess(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
