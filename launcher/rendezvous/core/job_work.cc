// SPDX-License-Identifier: Apache-2.0
//
// The workers of the generation, as their agents report them.
#include <algorithm>

#include "launcher/rendezvous/core/job.h"
#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

// After grace and SIGKILL an agent still has to reap and to sweep what is left.
constexpr Duration kStopSlack = 30s;

std::string first_word(const std::string& line) {
  return line.substr(0, line.find(' '));
}

}  // namespace

const MemberRanks* Job::ranks_of(const NodeName& node) const {
  const auto at = life_->group_ranks.find(node);
  return at == life_->group_ranks.end() ? nullptr : &life_->ranks[at->second];
}

bool Job::works_in_life(const Member& member) const {
  // A generation of a lost server may have had the same number: it was not this one.
  return life_ && !life_->ended && working_.contains(member.facts.name) &&
         member.work == life_->generation && life_->group_ranks.contains(member.facts.name);
}

bool Job::all_done(const NodeName& node) const {
  const MemberRanks* own = life_ ? ranks_of(node) : nullptr;
  if (own == nullptr) return false;
  for (std::uint32_t rank = own->first_rank; rank < own->first_rank + own->count; ++rank) {
    if (!life_->done.contains(rank)) return false;
  }
  return true;
}

bool Job::on(Member& member, const Envelope& envelope, const WorkersStarted& started) {
  if (!works_in_life(member) || envelope.generation != life_->generation) return false;
  const NodeName& name = member.facts.name;
  ever_execed_ = true;
  life_->unstarted.erase(name);
  if (!life_->announced.insert(name).second) return true;  // told again after a broken stream
  touch(name);
  const MemberRanks& own = *ranks_of(name);
  std::set<std::uint32_t> told;
  for (const StartedWorker& worker : started.workers) {
    if (!told.insert(worker.rank).second || worker.rank < own.first_rank ||
        worker.rank - own.first_rank >= own.count)
      continue;
    JobEvent event = node_event(name, event::WorkerStarted{first_word(spec_.program)});
    event.rank = worker.rank;
    event.local_rank = worker.rank - own.first_rank;
    event.pid = worker.pid;
    emit(std::move(event));
  }
  return true;
}

bool Job::on(Member& member, const Envelope& envelope, const WorkerExited& exited) {
  // A life that was given up (state lost) still ends in reports; they decide nothing.
  const bool given_up = phase_ == Phase::kRecovering && working_.contains(member.facts.name) &&
                        envelope.generation == member.work;
  if (given_up) return true;
  if (!works_in_life(member) || envelope.generation != life_->generation) return false;
  const NodeName& name = member.facts.name;
  const MemberRanks& own = *ranks_of(name);
  if (exited.rank < own.first_rank || exited.rank - own.first_rank >= own.count) return false;
  if (!life_->exited.insert(exited.rank).second) return true;  // told again
  touch(name);
  const Instant happened = now_ - std::clamp(exited.age, Duration{0}, now_ - life_->committed_at);
  // A worker that was stopped already may end by the agent's signal too: that says nothing.
  if (exited.parting || (exited.agent_signaled && !exited.torn_down)) {
    life_->parted_at = earlier(life_->parted_at, happened);
  }
  if (exited.status.kind != ExitStatus::Kind::kExecFailed) {
    ever_execed_ = true;
    emit_exit(name, exited);
  }
  if (exited.status.succeeded() && !exited.torn_down) {
    life_->done.insert(exited.rank);
    if (all_done(name)) life_->unstarted.erase(name);  // a worker that ended was started
  } else {
    note_failed_exit(member, exited, happened);
  }
  return true;
}

void Job::emit_exit(const NodeName& node, const WorkerExited& exited) {
  event::WorkerEnded ended;
  const bool signaled = exited.status.kind == ExitStatus::Kind::kSignaled;
  (signaled ? ended.signal : ended.exit_code) = exited.status.value;
  ended.torn_down = exited.torn_down;
  ended.max_rss_bytes = exited.max_rss_bytes;
  ended.run = exited.run;
  ended.stacks = exited.stacks;
  JobEvent event = node_event(node, ended);
  event.rank = exited.rank;
  event.local_rank = exited.rank - ranks_of(node)->first_rank;
  if (exited.pid > 0) event.pid = exited.pid;
  emit(std::move(event));
}

void Job::note_failed_exit(Member& member, const WorkerExited& exited, Instant happened) {
  const NodeName& name = member.facts.name;
  const std::size_t kept = shared_.options.limits.failures_kept;
  if (exited.torn_down) {
    if (exited.status.succeeded() || life_->torn_down.size() >= kept) return;
    Failure victim = to_failure(exited, name);
    const bool crashed = is_own_fault(victim.signal.value_or(0));
    if (victim.detail.empty())
      victim.detail = crashed ? "while the launcher stopped it" : "stopped by the launcher";
    life_->torn_down.push_back(std::move(victim));
    return;
  }
  Cause cause;
  cause.failure = to_failure(exited, name);
  cause.reported = now_;
  cause.happened = happened;
  cause.order = exited.order;
  cause.agent_signaled = exited.agent_signaled;
  cause.stops_agent = exited.stops_agent;
  cause.hang = exited.hang;
  if (exited.spoke) cause.spoke = now_ - std::min(*exited.spoke, now_ - life_->committed_at);
  std::string reason = describe(cause.failure);
  if (member.leaving && is_stop(cause)) life_->parted_at = earlier(life_->parted_at, happened);
  life_->note(std::move(cause));
  begin_stop(StopWhy::kFailure, false, std::move(reason));
}

bool Job::on(Member& member, const Envelope& envelope, const StopConfirmed&) {
  const NodeName& name = member.facts.name;
  if (envelope.generation != member.work || member.work == kNoGeneration) return false;
  if (!working_.contains(name)) return true;  // a second order was answered too
  if (runs() && works_in_life(member) && !member.leaving) {
    // Only a stop that was ordered can be confirmed: by the server before this one, whose journal
    // lost the order.
    if (!read_back_) return false;
    const std::string why = "the server's journal lost its order to stop this generation";
    publish_event(job_event(event::StateLost{why}));
    begin_stop(StopWhy::kStateLost, false, why);
  }
  stopped_working(name);
  return true;
}

bool Job::on(Member& member, const Envelope& envelope, const ChaosFired& fired) {
  if (finished() || envelope.generation > generation_) return false;
  const Fault* fault = faults_.fired(fired.fault_index);
  if (fault == nullptr) return true;  // told again, or not in the plan
  const std::string target =
      fired.rank ? "rank " + std::to_string(*fired.rank) : "node " + member.facts.name;
  JobEvent event = node_event(member.facts.name, event::ChaosHit{fault->text, target});
  event.generation = envelope.generation;
  event.rank = fired.rank;
  publish_event(std::move(event));
  return true;
}

bool Job::try_running() {
  if (!life_->unstarted.empty()) return false;
  phase_ = Phase::kRunning;
  life_->running_at = now_;
  life_->kept_at = now_;
  life_->form = life_->committed_at - round_opened_at_;
  publish_event(running_event());
  if (recovery_) {
    event::Recovered recovered;
    recovered.detect = recovery_->detected_at - recovery_->failed_at;
    recovered.stop = recovery_->stopped_at - recovery_->detected_at;
    recovered.form = life_->committed_at - recovery_->stopped_at;
    recovered.spawn = *life_->running_at - life_->committed_at;
    recovered.total = now_ - recovery_->failed_at;
    recoveries_.add(recovered);
    life_->recovered = recovered;
    life_->recovers_from = recovery_->failed_at;
    recovery_.reset();
    // Workers that never reported progress are not waited for.
    if (!reports_steps_) tell_recovered();
  }
  return true;
}

// Once, with the first progress or without any: when it took too long, or the generation ends.
void Job::tell_recovered() {
  if (!life_->recovered) return;
  stirred_ = true;
  publish_event(job_event(*life_->recovered));
  life_->recovered.reset();
}

// Success, or nodes that came late to a job below MAX.
bool Job::check_running() {
  if (life_->done.size() == life_->world_size) {
    end_life(true);
    finish(Outcome{});
    return true;
  }
  return try_grow();
}

// Stops the generation that runs; the order leaves at once, whatever is found out later.
void Job::begin_stop(StopWhy why, bool planned, std::string reason) {
  if (phase_ == Phase::kStarting || phase_ == Phase::kRunning) {
    phase_ = Phase::kStopping;
    order_stops(why, planned, std::move(reason));
  } else if (phase_ == Phase::kStopping && stop_->planned && !planned) {
    // There is nothing left to save together: no half of the grace for it.
    stop_->planned = false;
    stop_->reason = std::move(reason);
    for (const NodeName& name : working_)
      order_stop(members_.at(name));
  }
}

Job::Stop Job::new_stop(StopWhy why, bool planned, std::string reason) const {
  Stop stop;
  stop.why = why;
  stop.planned = planned;
  stop.reason = std::move(reason);
  stop.began = now_;
  stop.give_up_at = now_ + spec_.policy.stop_grace + spec_.policy.node_timeout + kStopSlack;
  return stop;
}

void Job::order_stops(StopWhy why, bool planned, std::string reason) {
  stop_ = new_stop(why, planned, std::move(reason));
  for (const NodeName& name : working_)
    order_stop(members_.at(name));
}

void Job::order_stop(const Member& member) {
  MUSTER_CHECK(stop_.has_value());
  send(member, member.work, StopOrder{StopMode::kStop, stop_->planned, stop_->reason});
}

// Who was told to stop and has not confirmed: all that work, but for those of a generation that
// runs while a late one of a lost server's stops beside it.
std::vector<NodeName> Job::stopping_nodes() const {
  std::vector<NodeName> nodes;
  for (const NodeName& name : working_) {
    if (!runs() || !works_in_life(members_.at(name))) nodes.push_back(name);
  }
  return nodes;
}

void Job::stopped_working(const NodeName& node) {
  working_.erase(node);
  touch(node);
}

}  // namespace muster::rendezvous
