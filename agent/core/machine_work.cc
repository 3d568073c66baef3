// SPDX-License-Identifier: Apache-2.0
//
// The workers of this node: what they did, and stopping them.
#include <algorithm>

#include "agent/core/machine.h"
#include "proto/base/check.h"
#include "proto/base/failure.h"

namespace muster::agent {
namespace {

// Descendants usually end with their worker; only those that stay are worth a line.
constexpr Duration kLingerLineAfter = 1s;

constexpr int kExitUnfit = 77;

}  // namespace

Worker* Agent::State::find(std::uint32_t local_rank) {
  for (Worker& worker : workers_) {
    if (worker.local_rank == local_rank) return &worker;
  }
  return nullptr;
}

bool Agent::State::any_alive() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.gone; });
}

bool Agent::State::any_not_over() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& w) { return !w.gone && !w.given_up; });
}

bool Agent::State::any_leader_alive() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& w) { return !w.ended() && !w.given_up; });
}

// ---------------------------------------------------------------- facts

void Agent::State::on(const WorkerSpawned& spawned) {
  Worker* worker = find(spawned.local_rank);
  if (worker == nullptr || worker->spawned || worker->ended()) return;
  worker->spawned = true;
  worker->pid = spawned.pid;
  JobEvent event;
  event.generation = assignment_.generation;
  event.node = config_.node.name;
  event.rank = worker->rank;
  event.local_rank = worker->local_rank;
  event.pid = worker->pid;
  event.body = event::WorkerStarted{worker->argv0};
  emit(std::move(event));
  if (suspended_) suspend_worker(*worker);
  const bool all =
      std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.spawned; });
  if (!all) return;
  all_spawned_ = true;
  spawn_ = now_ - committed_at_;
  announce_started();
}

void Agent::State::announce_started() {
  WorkersStarted started;
  started.spawn = spawn_;
  for (const Worker& worker : workers_)
    started.workers.push_back({worker.rank, worker.pid});
  send(assignment_.generation, std::move(started));
}

void Agent::State::on(const WorkerEnded& ended) {
  Worker* worker = find(ended.local_rank);
  if (worker == nullptr || worker->ended()) return;
  worker->ended_at = now_;
  worker->ladder.leader_ended();
  WorkerExited& report = worker->report;
  report.rank = worker->rank;
  report.local_rank = worker->local_rank;
  report.pid = ended.pid;
  report.status = ended.status;
  const bool never_ran = ended.status.kind == ExitStatus::Kind::kExecFailed;
  // The stop file counts: it asked. A SIGKILL that we did not send is somebody else's.
  const bool killed_by_others = ended.status.kind == ExitStatus::Kind::kSignaled &&
                                ended.status.value == kSigKill && !worker->ladder.killed();
  report.torn_down = worker->ladder.begun() && !never_ran && !killed_by_others && !ended.unasked;
  report.parting = report.torn_down && worker->parting;
  report.oom = ended.oom;
  report.stacks = worker->stacks;
  const bool by_sigkill =
      ended.status.kind == ExitStatus::Kind::kSignaled && ended.status.value == kSigKill;
  if (worker->hang && by_sigkill) {
    report.hang = worker->hang;
    report.status.detail = worker->hang_words;
  }
  report.agent_signaled = signal_ && ended.status.kind == ExitStatus::Kind::kSignaled &&
                          ended.status.value == *signal_ &&
                          now_ - signaled_at_ <= kSameSignalWindow;
  report.stops_agent = stops_agent(ending_signal(ended.status));
  report.order = ended.order;
  report.run = ended.run;
  report.max_rss_bytes = ended.max_rss_bytes;
  if (!ended.status.succeeded()) {
    report.stderr_tail = ended.stderr_tail;
    report.error_file = ended.error_file;
    report.secondary = ended.secondary;
  }
  if (never_ran) worker->ladder.close();  // there is no process, hence none to signal
  const bool failed = !ended.status.succeeded() && !report.torn_down && !report.agent_signaled;
  if (failed) {
    worker->failing = ended.failing;
    worker->spoke = ended.spoke;
  }
  emit_exit(*worker);
  report_exit(*worker);
  if (failed) react_to_failure(*worker);
}

bool Agent::State::stops_agent(int signal) const {
  const auto& more = config_.more_stop_signals;
  return is_stop_signal(signal) || std::find(more.begin(), more.end(), signal) != more.end();
}

void Agent::State::emit_exit(const Worker& worker) {
  const WorkerExited& report = worker.report;
  if (report.status.kind == ExitStatus::Kind::kExecFailed) return;  // it never was a worker
  event::WorkerEnded body;
  if (report.status.kind == ExitStatus::Kind::kExited) body.exit_code = report.status.value;
  if (report.status.kind == ExitStatus::Kind::kSignaled) body.signal = report.status.value;
  body.torn_down = report.torn_down;
  body.max_rss_bytes = report.max_rss_bytes;
  body.run = report.run;
  body.stacks = report.stacks;
  JobEvent event;
  event.generation = assignment_.generation;
  event.node = config_.node.name;
  event.rank = worker.rank;
  event.local_rank = worker.local_rank;
  event.pid = report.pid;
  event.body = body;
  emit(std::move(event));
}

void Agent::State::report_exit(Worker& worker) {
  if (assignment_.generation == kNoGeneration) return;  // of a run that is not ours any more
  worker.report.age = now_ - *worker.ended_at + worker.failing;
  if (worker.spoke) worker.report.spoke = now_ - *worker.ended_at + *worker.spoke;
  send(assignment_.generation, worker.report);
}

// The report has left already. The other ranks here cannot go on without this one: they are
// stopped now, without waiting for the server's order, which will say the same.
void Agent::State::react_to_failure(const Worker& worker) {
  if (!cause_noted_) {
    cause_noted_ = true;
    act(NoteFirstCause{to_failure(worker.report, config_.node.name)});
  }
  stopping_ = true;
  capture_.reset();
  stop_workers(wanted_signal(), policy_.stop_grace);
}

void Agent::State::on(const WorkerGone& gone) {
  Worker* worker = find(gone.local_rank);
  if (worker == nullptr || worker->gone) return;
  MUSTER_CHECK(worker->ended());
  worker->gone = true;
  worker->ladder.close();
  // Where another generation is likely, at once; else when it is prepared, if it ever is.
  if (stopping_ && !end_ && restarts_used_ < assignment_.max_restarts) await_devices();
}

void Agent::State::on(const WorkerUnkillable& unkillable) {
  Worker* worker = find(unkillable.local_rank);
  if (worker == nullptr || worker->gone || worker->given_up) return;
  worker->given_up = true;
  worker->ladder.close();
  const std::string text = "process " + std::to_string(unkillable.pid) + " of rank " +
                           std::to_string(worker->rank) + " cannot be killed (state " +
                           unkillable.state + "); this node is unfit";
  kill_workers();
  leave(0, text);
  const bool succeeded = outcome_ && outcome_->kind == OutcomeKind::kSucceeded;
  if (succeeded) return say(Severity::kError, text);
  end_ = End{kExitUnfit, ExitClass::kUnfit, std::nullopt, text};  // whose text is said last
}

void Agent::State::on(const FaultFired& fired) {
  const ChaosFired fault{fired.fault_index, fired.rank};
  if (link_.usable()) {
    send(assignment_.generation, fault);
  } else {
    faults_unsent_.push_back(fault);
  }
}

void Agent::State::on(const ProgressSampled& sampled) {
  progress_ = sampled.progress;
  output_heard_ = sampled.heard;
  progress_at_ = now_;
}

std::vector<RankProgress> Agent::State::progress_now() const {
  std::vector<RankProgress> progress = progress_;
  for (RankProgress& rank : progress)
    rank.age += now_ - progress_at_;
  return progress;
}

// ---------------------------------------------------------------- stopping

void Agent::State::stop_workers(int signal, Duration grace, Duration spares_failing) {
  for (Worker& worker : workers_) {
    if (worker.gone) continue;
    if (!worker.ladder.begun()) worker.spares_failing = spares_failing;
    worker.ladder.begin(signal, config_.stop_scope, now_, now_ + grace);
  }
}

// Everyone reads the stop file in their own time; only who is known to look at it (it reports
// progress) is left alone for half of the grace.
void Agent::State::stop_planned(int signal, Duration grace) {
  for (Worker& worker : workers_) {
    if (worker.gone) continue;
    if (!worker.ended() && !worker.ladder.begun()) act(WriteStopFile{worker.local_rank});
    const bool reports =
        std::any_of(progress_.begin(), progress_.end(),
                    [&](const RankProgress& progress) { return progress.rank == worker.rank; });
    const Instant signal_at = reports ? now_ + grace / 2 : now_;
    worker.ladder.begin(signal, config_.stop_scope, signal_at, now_ + grace);
  }
}

void Agent::State::kill_workers() {
  for (Worker& worker : workers_) {
    if (!worker.gone) worker.ladder.kill(now_);
  }
}

// What a worker that ended well left behind may run on for a grace.
std::optional<Instant> Agent::State::linger_deadline(const Worker& worker) const {
  if (!worker.ended() || worker.gone || worker.ladder.begun()) return std::nullopt;
  const Duration grace = exit_grace();
  return *worker.ended_at + (worker.lingers_said ? grace : std::min(kLingerLineAfter, grace));
}

void Agent::State::drive_ladders() {
  for (Worker& worker : workers_) {
    const auto linger = linger_deadline(worker);
    if (linger && now_ >= *linger && !worker.lingers_said) {
      worker.lingers_said = true;
      act(SayLingering{worker.local_rank, worker.rank, exit_grace()});
    }
    if (const auto end = linger_deadline(worker); end && now_ >= *end) {
      worker.ladder.begin(wanted_signal(), SignalScope::kGroup, now_, now_ + policy_.stop_grace);
    }
    for (const StopLadder::Order& order : worker.ladder.due(now_)) {
      act(SignalWorker{.local_rank = worker.local_rank,
                       .signal = order.signal,
                       .scope = order.scope,
                       .patience = kill_patience(),
                       .spares_failing = worker.spares_failing});
    }
    if (worker.ladder.begun()) wake_worker(worker);
  }
}

}  // namespace muster::agent
