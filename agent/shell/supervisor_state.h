// SPDX-License-Identifier: Apache-2.0
//
// The insides of Supervisor and WorkerProcess; included by supervisor.cc and worker_process.cc
// only.
//
// Thread rule: io thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/end_batch.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/worker_process.h"

namespace muster::agent {

// Last words: what was said longer before an end has nothing to do with it.
inline constexpr Duration kLately = 250ms;
// How long everything waits for one program to be loaded; then it is looked at now and then.
inline constexpr Duration kSpawnPatience = 20ms;

struct Supervisor::State {
  explicit State(boost::asio::io_context& context) : io(context), end_batch(context) {}

  boost::asio::io_context& io;
  std::map<pid_t, std::shared_ptr<WorkerProcess::State>> workers;  // leaders not yet reaped
  std::set<pid_t> bystanders;          // children from before; never waited for
  std::map<ProcessKey, pid_t> owners;  // orphan -> worker
  // The same of our own children, by pid: until we reap it no other process has it.
  std::map<pid_t, pid_t> adopted;
  std::set<ProcessKey> given_up;                           // SIGKILL did not end them in time
  std::deque<std::weak_ptr<WorkerProcess::State>> spawns;  // the latest
  std::unique_ptr<SignalWatch> child_signal;
  EndBatch end_batch;
  std::uint64_t next_order = 1;
  Duration kill_limit = 5s;
  bool started_any = false;
  bool closed = false;

  // Whose what was adopted and lives is.
  struct Look {
    std::set<pid_t> owners;  // leaders
    bool unowned = false;    // something is nobody's
    bool undecided = false;  // … may be somebody's still
    bool blind = false;      // there may be more
  };
  Look look();
  // Children that are neither workers nor bystanders: adopted.
  std::vector<pid_t> orphans() const;
  void reap_orphans();
  void children_changed();
  // The worker whose descent `orphan` is: by session or group, else by control group or marker.
  std::optional<pid_t> owner_of(const ProcessInfo& orphan);
  bool any_other_leader_lives(pid_t than) const;
  // Leaders whose ends were not seen yet and which nobody asked for.
  std::vector<StillAlive> unasked_and_alive(pid_t than) const;
  void bound_spawns(const std::shared_ptr<WorkerProcess::State>& latest);
};

struct WorkerProcess::State : std::enable_shared_from_this<WorkerProcess::State> {
  State(std::shared_ptr<Supervisor::State> owner, WorkerCallbacks calls)
      : supervisor(std::move(owner)),
        callbacks(std::move(calls)),
        descriptor(supervisor->io),
        timer(supervisor->io),
        looker(supervisor->io),
        starter(supervisor->io) {}

  std::shared_ptr<Supervisor::State> supervisor;
  WorkerCallbacks callbacks;
  boost::asio::posix::stream_descriptor descriptor;  // the pidfd
  boost::asio::steady_timer timer;                   // repeats SIGKILL
  boost::asio::steady_timer looker;                  // … a look that could not see
  boost::asio::steady_timer starter;                 // … one at `spawn`
  std::string marker;
  std::shared_ptr<WorkerCgroup> cgroup;  // nullptr: it is in ours
  std::unique_ptr<Spawn> spawn;          // until it is known whether exec succeeded
  pid_t leader = 0;
  Instant started;
  bool has_ended = false;
  bool end_told = false;  // it may wait for others
  bool expected = false;  // somebody asked for the end
  bool is_gone = false;
  bool closed = false;  // no callback any more
  bool killing = false;
  bool reported = false;  // as unkillable
  SignalScope kill_scope = SignalScope::kLeader;
  std::map<int, std::set<ProcessKey>> told_with_group;  // by signal, as it was sent last
  Instant kill_deadline;
  Duration kill_pause{0};

  std::optional<Duration> failing() const {
    return callbacks.failing ? callbacks.failing() : std::nullopt;
  }
  // When it last spoke, if that was lately.
  std::optional<Instant> last_words() const {
    const std::optional<Instant> at = callbacks.last_words ? callbacks.last_words() : std::nullopt;
    return at && IoLoop::now() - *at < kLately ? at : std::nullopt;
  }
  std::vector<ProcessInfo> below();     // living processes of it, less the leader
  std::vector<ProcessInfo> unkilled();  // what is left of kill_scope
  void watch();
  // Tells whether it has become the program, before anything else of it is told. False: it has
  // not, or nobody wants to know.
  bool settle();
  void settle_later();
  void never_started(SpawnResult result);
  void look_at_status_later();
  void read_status();
  void tell_ended(WorkerExit exit, Instant seen);
  void check_gone();
  void check_gone(const Supervisor::State::Look& seen);
  void look_again();
  void forget();
  void send(int signal, SignalScope scope, std::optional<Duration> patience);
  void deliver(int signal, SignalScope scope);
  void note_told(int signal);
  void kill_pass(SignalScope scope);
  void kill_for_good();
  void watch_kill();
  void give_up(const std::vector<ProcessInfo>& left);
};

}  // namespace muster::agent
