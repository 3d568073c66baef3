// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/shell/io_loop.h"
#include "agent/shell/supervisor_state.h"
#include "agent/shell/worker_process.h"
#include "proto/base/check.h"

namespace muster::agent {

namespace {

const std::string kMarkerName = "MUSTER_RUN_DIR";

}  // namespace

// ------------------------------------------------------------------ Supervisor::State

std::vector<pid_t> Supervisor::State::orphans() const {
  std::vector<pid_t> found;
  for (const pid_t child : children_of(::getpid())) {
    if (!workers.contains(child) && !bystanders.contains(child)) found.push_back(child);
  }
  return found;
}

void Supervisor::State::reap_orphans() {
  for (const pid_t orphan : orphans()) {
    if (::waitpid(orphan, nullptr, WNOHANG) == orphan) adopted.erase(orphan);
  }
}

// One look for all of them: with many workers and what they leave behind, a look each time for each
// is what a stop would be spent on.
void Supervisor::State::children_changed() {
  const Look seen = look();
  // A copy: callbacks may start and destroy workers.
  const std::map<pid_t, std::shared_ptr<WorkerProcess::State>> now = workers;
  for (const auto& [pid, worker] : now)
    worker->check_gone(seen);
}

Supervisor::State::Look Supervisor::State::look() {
  Look seen;
  const std::uint64_t misses = missed_looks();
  reap_orphans();
  for (const pid_t pid : orphans()) {
    if (const auto known = adopted.find(pid); known != adopted.end()) {
      seen.owners.insert(known->second);  // it was not to be reaped
      continue;
    }
    const auto orphan = read_process(pid);
    if (!orphan || orphan->state == 'Z' || orphan->state == 'X') continue;
    if (const std::optional<pid_t> owner = owner_of(*orphan)) {
      seen.owners.insert(*owner);
    } else if (orphan->exiting) {
      // It has lost what tells its owner, and its children are not ours yet.
      seen.undecided = true;
    } else {
      seen.unowned = true;
    }
  }
  seen.blind = missed_looks() != misses;
  return seen;
}

std::optional<pid_t> Supervisor::State::owner_of(const ProcessInfo& orphan) {
  const ProcessKey key = key_of(orphan);
  const auto found = [&](pid_t leader) {
    owners[key] = leader;  // it may be about to leave what tells it
    if (orphan.parent == ::getpid()) adopted[orphan.pid] = leader;
    return leader;
  };
  if (const auto known = owners.find(key); known != owners.end()) return found(known->second);
  for (const pid_t leader : {orphan.session, orphan.group}) {
    if (workers.contains(leader)) return found(leader);
  }
  const std::string groups = control_groups_of(orphan.pid);
  const std::string entry = environment_entry(orphan.pid, kMarkerName).value_or("");
  for (const auto& [pid, worker] : workers) {
    const bool inside = worker->cgroup && worker->cgroup->is_among(groups);
    if (!inside && (entry.empty() || worker->marker != entry)) continue;
    return found(pid);
  }
  return std::nullopt;
}

// Each has a stack and a copy of the environment.
void Supervisor::State::bound_spawns(const std::shared_ptr<WorkerProcess::State>& latest) {
  constexpr std::size_t kAtOnce = 32;
  spawns.push_back(latest);
  if (spawns.size() <= kAtOnce) return;
  const auto first = spawns.front().lock();
  if (first && first->spawn) first->spawn->wait(kSpawnPatience);
  spawns.pop_front();
}

std::vector<StillAlive> Supervisor::State::unasked_and_alive(pid_t than) const {
  std::vector<StillAlive> others;
  for (const auto& [pid, worker] : workers) {
    if (pid == than || worker->has_ended || worker->expected || worker->spawn) continue;
    const auto process = read_process(pid);
    const bool ends = process && (process->exiting || process->state == 'Z');
    const std::optional<Duration> failing = ends ? std::nullopt : worker->failing();
    const std::optional<Instant> since =
        failing ? std::optional(IoLoop::now() - *failing) : std::nullopt;
    others.push_back({pid, ends, since, worker->last_words()});
  }
  return others;
}

bool Supervisor::State::any_other_leader_lives(pid_t than) const {
  return std::any_of(workers.begin(), workers.end(), [than](const auto& entry) {
    return entry.first != than && !entry.second->has_ended;
  });
}

// ------------------------------------------------------------------ Supervisor

Supervisor::Supervisor(boost::asio::io_context& io) : state_(std::make_shared<State>(io)) {
  MUSTER_CHECK(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  reserve_looks();
  for (const pid_t child : children_of(::getpid()))
    state_->bystanders.insert(child);
  state_->child_signal = std::make_unique<SignalWatch>(
      io, std::vector<int>{SIGCHLD}, [state = std::weak_ptr(state_)](const SignalInfo&) {
        if (const auto alive = state.lock()) alive->children_changed();
      });
}

Supervisor::~Supervisor() {
  state_->closed = true;
  state_->child_signal.reset();
  // Workers that outlive us have no supervisor any more: nothing of them may stay.
  const auto workers = std::exchange(state_->workers, {});
  for (const auto& [pid, worker] : workers) {
    worker->closed = true;
    worker->is_gone = true;
    boost::system::error_code ignored;
    worker->descriptor.close(ignored);
    worker->timer.cancel();
    worker->looker.cancel();
    worker->starter.cancel();
  }
  if (!state_->started_any) return;
  kill_all_below_self(state_->kill_limit, state_->bystanders, state_->given_up);
}

void Supervisor::set_peers_elsewhere(bool peers) {
  state_->end_batch.set_peers_elsewhere(peers);
}

void Supervisor::set_kill_limit(Duration limit) {
  state_->kill_limit = limit;
}

std::unique_ptr<WorkerProcess> Supervisor::start(const WorkerRequest& request,
                                                 WorkerCallbacks callbacks) {
  auto worker = std::make_shared<WorkerProcess::State>(state_, std::move(callbacks));
  worker->marker = request.marker;
  worker->started = IoLoop::now();
  SpawnRequest wanted = request.spawn;
  const UniqueFd cgroup = request.cgroup ? request.cgroup->open() : UniqueFd();
  wanted.cgroup = cgroup.get();
  worker->spawn = Spawn::begin(wanted);
  if (worker->spawn->pid() > 0) {
    state_->started_any = true;
    worker->leader = worker->spawn->pid();
    if (worker->spawn->in_cgroup()) worker->cgroup = request.cgroup;
    state_->workers[worker->leader] = worker;
    boost::system::error_code error;
    worker->descriptor.assign(worker->spawn->take_pidfd().release(), error);
    MUSTER_CHECK(!error);
    // Watched from now on: ends are seen in the order in which they happen, also those of workers
    // that end while others are being started.
    worker->watch();
  }
  state_->bound_spawns(worker);
  boost::asio::post(state_->io, [worker] { worker->settle(); });
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(std::move(worker)));
}

}  // namespace muster::agent
