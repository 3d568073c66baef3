// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/worker_process.h"

#include <algorithm>
#include <errno.h>
#include <fstream>
#include <optional>
#include <set>
#include <signal.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/core/exit_status.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/supervisor_state.h"
#include "proto/base/check.h"
#include "proto/base/failure.h"

namespace muster::agent {

namespace {

// Between two looks where /proc cannot be read for want of descriptors or memory.
constexpr Duration kBlindPause = 50ms;
constexpr Duration kSpawnPause = 20ms;

// ", traced by process 7"; empty: nobody does.
std::string tracer_words(pid_t pid) {
  constexpr std::string_view kName = "TracerPid:\t";
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kName)) continue;
    const std::string tracer = line.substr(kName.size());
    return tracer == "0" ? "" : ", traced by process " + tracer;
  }
  return "";
}

}  // namespace

// ------------------------------------------------------------------ WorkerProcess::State

std::vector<ProcessInfo> WorkerProcess::State::below() {
  std::vector<ProcessInfo> found;
  const auto add = [&found](const ProcessInfo& process) {
    if (process.state != 'Z' && process.state != 'X') found.push_back(process);
  };
  for (const pid_t pid : supervisor->orphans()) {
    const auto known = supervisor->adopted.find(pid);
    if (known != supervisor->adopted.end() && known->second != leader) continue;
    const auto orphan = read_process(pid);
    if (!orphan) continue;
    const std::optional<pid_t> owner = supervisor->owner_of(*orphan);
    // Whose it is cannot be told: it belongs to whichever worker goes last.
    const bool ours = owner ? *owner == leader : !supervisor->any_other_leader_lives(leader);
    if (!ours) continue;
    add(*orphan);
    for (const ProcessInfo& process : descendants_of(pid))
      add(process);
  }
  if (!has_ended) {
    for (const ProcessInfo& process : descendants_of(leader))
      add(process);
  }
  return found;
}

void WorkerProcess::State::watch() {
  descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [self = shared_from_this()](const boost::system::error_code& error) {
                          if (error || self->closed) return;
                          self->read_status();
                        });
}

bool WorkerProcess::State::settle() {
  if (closed || is_gone) return false;
  if (!spawn) return true;
  if (!spawn->wait(kSpawnPatience)) {
    settle_later();
    return false;
  }
  SpawnResult result = std::exchange(spawn, nullptr)->finish();
  if (!result.ok()) {
    never_started(std::move(result));
    return false;
  }
  if (callbacks.spawned) callbacks.spawned(leader);
  return !closed;
}

// A program on a file server that does not answer: nobody else has to wait for it.
void WorkerProcess::State::settle_later() {
  starter.expires_after(kSpawnPause);
  starter.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->settle();
  });
}

void WorkerProcess::State::never_started(SpawnResult result) {
  if (leader != 0) forget();
  leader = 0;
  has_ended = true;
  WorkerExit exit;
  exit.status.kind = ExitStatus::Kind::kExecFailed;
  exit.status.value = result.error;
  exit.status.detail = std::move(result.detail);
  exit.order = supervisor->next_order++;
  if (callbacks.ended) callbacks.ended(exit);
  if (closed) return;
  is_gone = true;
  if (callbacks.gone) callbacks.gone();
}

void WorkerProcess::State::look_at_status_later() {
  starter.expires_after(kBlindPause);
  starter.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error && !self->closed && !self->has_ended) self->watch();
  });
}

// Reads how the leader ended and leaves the zombie: it pins pid, group and session.
void WorkerProcess::State::read_status() {
  if (!settle()) return;
  siginfo_t info{};
  rusage usage{};
  const long result = ::syscall(SYS_waitid, P_PIDFD, descriptor.native_handle(), &info,
                                WEXITED | WNOHANG | WNOWAIT, &usage);
  MUSTER_CHECK(result == 0);
  // A debugger's child first: it keeps what it traces from being reaped.
  if (info.si_pid == 0) return look_at_status_later();
  has_ended = true;
  WorkerExit exit;
  exit.pid = leader;
  exit.wait_code = info.si_code;
  exit.wait_status = info.si_status;
  exit.status = decode_wait(info.si_code, info.si_status);
  exit.run = IoLoop::now() - started;
  exit.max_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  exit.unasked = !expected;
  const bool failed = exit.unasked && !exit.status.succeeded();
  if (failed) exit.failing = failing().value_or(0s);
  SeenEnd end;
  end.pid = leader;
  const std::string tail = failed && callbacks.stderr_tail ? callbacks.stderr_tail() : "";
  if (!exit.status.succeeded()) end.evidence = evidence_of(exit.status, tail);
  end.seen = IoLoop::now();
  end.began = end.seen - exit.failing;
  end.spoke = exit.failing > 0s ? end.began : last_words();
  if (failed && end.spoke) exit.spoke = end.seen - *end.spoke;
  const auto others = [this] { return supervisor->unasked_and_alive(leader); };
  const auto tell = [weak = weak_from_this(), exit, seen = end.seen] {
    const auto self = weak.lock();
    if (self && !self->closed) self->tell_ended(exit, seen);
  };
  supervisor->end_batch.add(end, failed, others, tell);
}

void WorkerProcess::State::tell_ended(WorkerExit exit, Instant seen) {
  // Other nodes did not wait.
  if (exit.unasked && !exit.status.succeeded()) {
    exit.failing += IoLoop::now() - seen;
    if (exit.spoke) *exit.spoke += IoLoop::now() - seen;
  }
  exit.order = supervisor->next_order++;
  end_told = true;
  if (callbacks.ended) callbacks.ended(exit);
  check_gone();
}

void WorkerProcess::State::check_gone() {
  if (closed || is_gone || !end_told) return;
  check_gone(supervisor->look());
}

void WorkerProcess::State::check_gone(const Supervisor::State::Look& seen) {
  if (closed || is_gone || !end_told) return;
  // What is undecided ends with a SIGCHLD, and is looked at again. Whose it is that nobody can
  // tell: it belongs to whichever worker goes last.
  const bool last = !supervisor->any_other_leader_lives(leader);
  if (seen.undecided || seen.owners.contains(leader) || (seen.unowned && last)) return;
  if (seen.blind) return look_again();  // who knows what else is there
  MUSTER_CHECK(::waitpid(leader, nullptr, WNOHANG) == leader);
  forget();
  is_gone = true;
  // Others may have waited for this leader's end to own what nobody owns.
  boost::asio::post(supervisor->io, [supervisor = supervisor] {
    if (!supervisor->closed) supervisor->children_changed();
  });
  if (callbacks.gone) callbacks.gone();
}

void WorkerProcess::State::look_again() {
  looker.expires_after(kBlindPause);
  looker.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->check_gone();
  });
}

// The pid may be reused from here on.
void WorkerProcess::State::forget() {
  supervisor->workers.erase(leader);
  const auto ours = [this](const auto& entry) { return entry.second == leader; };
  std::erase_if(supervisor->owners, ours);
  std::erase_if(supervisor->adopted, ours);
  boost::system::error_code ignored;
  descriptor.close(ignored);
  timer.cancel();
  looker.cancel();
  starter.cancel();
  cgroup.reset();
}

void WorkerProcess::State::send(int signal, SignalScope scope, std::optional<Duration> patience) {
  if (closed || is_gone || leader == 0) return;
  if (signal != SIGKILL) {
    // SIGSTOP would keep it from becoming the program.
    if (spawn) spawn->wait(kSpawnPatience);
    deliver(signal, scope);
    return;
  }
  kill_pass(scope);
  const Instant deadline = IoLoop::now() + patience.value_or(supervisor->kill_limit);
  kill_deadline = killing ? std::min(kill_deadline, deadline) : deadline;
  kill_scope = killing ? std::max(kill_scope, scope) : scope;
  killing = true;
  kill_pause = 2ms;
  watch_kill();
}

void WorkerProcess::State::deliver(int signal, SignalScope scope) {
  // Down from the leader: what a dying leader would take along has had the signal before.
  const bool to_leader = scope == SignalScope::kLeader || scope == SignalScope::kDescendants;
  if (!has_ended && to_leader) {
    ::syscall(SYS_pidfd_send_signal, descriptor.native_handle(), signal, nullptr, 0U);
  }
  // All of a group at once can be stopped twice, and cannot fork between two looks.
  const bool suspends = signal == SIGSTOP && scope == SignalScope::kDescendants;
  if (scope == SignalScope::kGroup && signal != SIGKILL) note_told(signal);
  if (scope == SignalScope::kGroup || suspends) ::kill(-leader, signal);
  if (scope == SignalScope::kLeader || scope == SignalScope::kGroup) return;
  for (const ProcessInfo& process : below()) {
    const bool told = process.group == leader || told_with_group[signal].contains(key_of(process));
    if (scope == SignalScope::kDescendants || !told) signal_process(process, signal);
  }
}

// Who has the signal with the group may leave it over that, and has it all the same.
void WorkerProcess::State::note_told(int signal) {
  std::set<ProcessKey>& told = told_with_group[signal];
  told.clear();
  for (const ProcessInfo& process : below()) {
    if (process.group == leader) told.insert(key_of(process));
  }
}

// Kills what is in scope, again while there is something new: a tree that forks faster than it is
// listed is frozen first.
void WorkerProcess::State::kill_pass(SignalScope scope) {
  constexpr int kPasses = 8;
  std::set<ProcessKey> known;
  for (int pass = 0; pass < kPasses; ++pass) {
    if (scope != SignalScope::kDescendants) return deliver(SIGKILL, scope);
    if (pass == 0) {
      deliver(SIGKILL, SignalScope::kLeader);  // it may not have come to a group of its own
      ::kill(-leader, SIGKILL);
      if (cgroup) cgroup->kill();
    }
    if (pass > 2) deliver(SIGSTOP, SignalScope::kDescendants);
    bool found_new = false;
    for (const ProcessInfo& process : below()) {
      found_new = known.insert(key_of(process)).second || found_new;
      signal_process(process, SIGKILL);
    }
    if (!found_new) return;
  }
}

// Nobody watches what this leaves. A process that is about to end may hide its children from a
// pass, so this goes on for the moment that the dying takes, and no longer where one cannot die.
void WorkerProcess::State::kill_for_good() {
  constexpr int kTries = 50;
  kill_scope = SignalScope::kDescendants;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    kill_pass(kill_scope);
    if (reported || (!supervisor->look().undecided && unkilled().empty())) return;
    std::this_thread::sleep_for(1ms);
  }
}

// What SIGKILL has not ended yet, in the scope it was sent to.
std::vector<ProcessInfo> WorkerProcess::State::unkilled() {
  std::vector<ProcessInfo> left;
  if (!has_ended) {
    // A zombie whose status is not to be had yet is held by a debugger, if that lasts.
    if (auto process = read_process(leader)) left.push_back(*process);
  }
  if (kill_scope == SignalScope::kLeader) return left;
  for (const ProcessInfo& process : below()) {
    if (kill_scope == SignalScope::kDescendants || process.group == leader) {
      left.push_back(process);
    }
  }
  return left;
}

void WorkerProcess::State::watch_kill() {
  timer.expires_after(kill_pause);
  timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error || self->closed || self->is_gone) return;
    const std::uint64_t misses = missed_looks();
    const std::vector<ProcessInfo> left = self->unkilled();
    if (left.empty() && missed_looks() == misses) {
      self->killing = false;
      return;
    }
    if (IoLoop::now() >= self->kill_deadline) {
      return self->give_up(left);
    }
    self->kill_pass(self->kill_scope);
    self->kill_pause = std::min<Duration>(self->kill_pause * 2, 100ms);
    self->watch_kill();
  });
}

void WorkerProcess::State::give_up(const std::vector<ProcessInfo>& left) {
  killing = false;
  for (const ProcessInfo& process : left)
    supervisor->given_up.insert(key_of(process));
  if (std::exchange(reported, true) || !callbacks.unkillable) return;
  const ProcessInfo one = left.empty() ? ProcessInfo{.pid = leader} : left.front();
  callbacks.unkillable(one.pid, std::string(1, one.state) + tracer_words(one.pid));
}

// ------------------------------------------------------------------ WorkerProcess

WorkerProcess::WorkerProcess(std::shared_ptr<State> state) : state_(std::move(state)) {}

WorkerProcess::~WorkerProcess() {
  if (!state_->closed && !state_->is_gone && state_->leader != 0) {
    if (!state_->has_ended) {
      ::syscall(SYS_pidfd_send_signal, state_->descriptor.native_handle(), SIGKILL, nullptr, 0U);
    }
    state_->kill_for_good();
    state_->forget();
    // Its zombie is an orphan now; the SIGCHLD may have come already.
    boost::asio::post(state_->supervisor->io, [supervisor = state_->supervisor] {
      if (!supervisor->closed) supervisor->children_changed();
    });
  }
  state_->closed = true;
}

void WorkerProcess::signal(int signal, SignalScope scope, std::optional<Duration> patience) {
  state_->send(signal, scope, patience);
}
void WorkerProcess::expect_end() {
  state_->expected = true;
  state_->supervisor->end_batch.heard_from_elsewhere();
}
pid_t WorkerProcess::pid() const {
  return state_->leader;
}
bool WorkerProcess::alive() const {
  return state_->leader != 0 && !state_->has_ended;
}
bool WorkerProcess::gone() const {
  return state_->is_gone;
}

bool WorkerProcess::failing() const {
  return alive() && !state_->expected && state_->failing().has_value();
}

std::vector<pid_t> WorkerProcess::descendants() const {
  std::vector<pid_t> pids;
  if (state_->is_gone || state_->closed || state_->leader == 0) return pids;
  for (const ProcessInfo& process : state_->below())
    pids.push_back(process.pid);
  return pids;
}

}  // namespace muster::agent
