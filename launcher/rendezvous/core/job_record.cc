// SPDX-License-Identifier: Apache-2.0
//
// A run as its record and back: what a journal is given, and a run that goes on after its server
// was replaced by one that read the journal.
#include <algorithm>
#include <iterator>

#include "launcher/rendezvous/core/job.h"
#include "proto/base/check.h"

namespace muster::rendezvous {

// ---------------------------------------------------------------- time that survives

WallTime Job::wall(Instant at) const {
  return shared_.options.unix_us_at_origin +
         std::chrono::floor<std::chrono::microseconds>(at.since_origin).count();
}

std::optional<WallTime> Job::wall(std::optional<Instant> at) const {
  if (!at) return std::nullopt;
  return wall(*at);
}

// What has happened is not in the future, whatever was done to the clock meanwhile.
Instant Job::past(WallTime at) {
  const WallTime here = wall(now_);
  set_back_ = set_back_ || at > here;
  return now_ - std::chrono::microseconds(here > at ? here - at : 0);
}

std::optional<Instant> Job::past(std::optional<WallTime> at) {
  if (!at) return std::nullopt;
  return past(*at);
}

// ---------------------------------------------------------------- writing

void Job::take(std::vector<Action>& out) {
  if (stirred_) write_down_changes(out);
  stirred_ = false;
  if (out.empty()) return out.swap(out_);
  out.reserve(out.size() + out_.size());
  std::move(out_.begin(), out_.end(), std::back_inserter(out));
  out_.clear();
}

void Job::write_down_changes(std::vector<Action>& out) {
  JobRecord now = record();
  if (now == written_ && !life_touched_ && touched_.empty()) return;
  Persist change;
  change.progress = progress_record();
  if (life_touched_) change.life = life_record();
  for (const NodeName& name : touched_) {
    if (std::optional<NodeRecord> node = node_record(name)) {
      change.nodes.push_back(std::move(*node));
    } else {
      change.removed.push_back(name);
    }
  }
  written_ = now;
  change.record = std::move(now);
  life_touched_ = false;
  touched_.clear();
  out.emplace_back(std::move(change));
}

JobRecord Job::record() const {
  JobRecord record;
  record.spec = spec_;
  record.asked = asked_;
  record.run = run_;
  record.aliases.assign(aliases_.begin(), aliases_.end());
  record.epoch = epoch_;
  record.phase = phase_ == Phase::kPreparing ? Phase::kForming : phase_;
  record.generation = generation_;
  record.last_incarnation = last_incarnation_;
  record.state_lost = state_lost_;
  record.server_left = server_left_;
  record.started = wall(started_at_);
  record.restarts_used = budget_.used();
  for (const Instant at : budget_.charges())
    record.charges.push_back(wall(at));
  record.faults_fired = faults_.fired();
  for (const auto& [node, offender] : quarantine_.offenders()) {
    OffenderRecord& written = record.offenders.emplace_back();
    written.node = node;
    for (const Instant at : offender.causes)
      written.causes.push_back(wall(at));
    written.times = offender.times;
    written.until = wall(offender.until);
  }
  record.reason = reason_;
  record.wait_for_max = wait_for_max_;
  record.reforming = reforming_;
  record.round_opened = wall(round_opened_at_);
  if (join_deadline_ > round_opened_at_ + spec_.policy.join_timeout) {
    record.join_until = wall(join_deadline_);
  }
  if (phase_ == Phase::kBackoff) record.backoff_until = wall(backoff_until_);
  if (stop_) {
    record.stop = StopRecord{stop_->why, stop_->planned, stop_->reason, wall(stop_->began)};
  }
  if (recovery_) {
    record.recovery = RecoveryRecord{wall(recovery_->failed_at), wall(recovery_->detected_at),
                                     wall(recovery_->stopped_at)};
  }
  record.fenced = wall(fenced_until_);
  record.grown = wall(grown_at_);
  if (life_) {
    record.life_ended = life_->ended;
    record.committed = wall(life_->committed_at);
    record.running = wall(life_->running_at);
    record.parted = wall(life_->parted_at);
    if (life_->recovered) {
      record.recovered = RecoveredRecord{*life_->recovered, wall(life_->recovers_from)};
    }
  }
  record.ever_execed = ever_execed_;
  record.kept = kept_;
  record.last_failure = last_failure_;
  for (const auto& [at, signal] : leaves_)
    record.leaves.emplace_back(wall(at), signal);
  record.last_leave_signal = last_leave_signal_;
  record.stop_requested_by = stop_requested_by_;
  record.drained = drained_;
  record.outcome = outcome_;
  if (finished()) record.finished = wall(finished_at_);
  return record;
}

ProgressRecord Job::progress_record() const {
  ProgressRecord record;
  record.reports_steps = reports_steps_;
  record.best_step = best_step_;
  record.best_checkpoint = best_checkpoint_;
  record.failures_in_row = budget_.failures_in_row();
  record.losses_in_row = budget_.losses_in_row();
  record.idle_generations = idle_generations_;
  if (life_) {
    record.rose = life_->rose;
    record.kept = wall(life_->kept_at);
  }
  return record;
}

void Job::touch_all() {
  life_touched_ = life_.has_value();
  for (const auto& [name, member] : members_)
    touch(name);
  for (const auto& [name, attempts] : gone_)
    touch(name);
  if (!life_) return;
  for (const MemberRanks& ranks : life_->ranks)
    touch(ranks.node);
}

LifeRecord Job::life_record() const {
  return {life_->generation, committed_attempt_, life_->ranks, life_->master_addr,
          life_->master_port};
}

// nullopt: nothing of this node need survive.
std::optional<NodeRecord> Job::node_record(const NodeName& name) const {
  const auto member = members_.find(name);
  const MemberRanks* ranks = life_ ? ranks_of(name) : nullptr;
  const bool known = member != members_.end() || gone_.contains(name);
  if (!known && ranks == nullptr) return std::nullopt;
  NodeRecord record =
      less_torn_down(name, member == members_.end() ? nullptr : &member->second, ranks);
  if (ranks == nullptr) return record;
  for (const Failure& failure : life_->torn_down) {
    if (failure.node == name) record.torn_down.push_back(failure);
  }
  return record;
}

// `member`, `ranks`: null where it has none.
NodeRecord Job::less_torn_down(const NodeName& name, const Member* member,
                               const MemberRanks* ranks) const {
  NodeRecord record;
  record.node = name;
  if (member != nullptr) {
    record.member =
        MemberRecord{member->facts,   member->observed_addr, member->incarnation,     member->role,
                     member->leaving, member->work,          working_.contains(name), member->past,
                     member->returned};
  } else if (const auto gone = gone_.find(name); gone != gone_.end()) {
    record.gone = gone->second;
  }
  if (ranks == nullptr) return record;
  record.started = life_->announced.contains(name);
  const auto own = [&](const std::set<std::uint32_t>& all) {
    return std::vector<std::uint32_t>(all.lower_bound(ranks->first_rank),
                                      all.lower_bound(ranks->first_rank + ranks->count));
  };
  record.exited = own(life_->exited);
  record.done = own(life_->done);
  const auto causes = life_->causes_of.find(name);
  if (causes != life_->causes_of.end()) {
    for (const std::size_t index : causes->second) {
      const Cause& cause = life_->causes[index];
      record.causes.push_back({cause.failure, wall(cause.reported), wall(cause.happened),
                               cause.order, cause.agent_signaled, cause.stops_agent, cause.hang,
                               wall(cause.spoke)});
    }
  }
  return record;
}

RunRecord Job::whole_record() const {
  RunRecord run{record(), progress_record(), std::nullopt, {}};
  if (life_) run.life = life_record();
  // Members and the nodes of the life, both by name, as one list.
  static const std::map<NodeName, std::uint32_t> kNone;
  const std::map<NodeName, std::uint32_t>& places = life_ ? life_->group_ranks : kNone;
  run.nodes.reserve(std::max(members_.size(), places.size()));
  auto member = members_.begin();
  for (auto place = places.begin(); member != members_.end() || place != places.end();) {
    const int order = place == places.end()      ? -1
                      : member == members_.end() ? 1
                                                 : member->first.compare(place->first);
    const Member* is_member = order <= 0 ? &member->second : nullptr;
    const MemberRanks* ranks = order >= 0 ? &life_->ranks[place->second] : nullptr;
    run.nodes.push_back(
        less_torn_down(order <= 0 ? member->first : place->first, is_member, ranks));
    if (order <= 0) ++member;
    if (order >= 0) ++place;
  }
  const auto place = [&run](const NodeName& name) {
    return std::lower_bound(
        run.nodes.begin(), run.nodes.end(), name,
        [](const NodeRecord& record, const NodeName& other) { return record.node < other; });
  };
  for (const auto& [name, attempts] : gone_) {
    const auto node = place(name);
    if (node != run.nodes.end() && node->node == name) continue;
    run.nodes.insert(node, less_torn_down(name, nullptr, nullptr));
  }
  if (!life_) return run;
  for (const Failure& failure : life_->torn_down) {
    const auto node = place(failure.node);
    MUSTER_CHECK(node != run.nodes.end() && node->node == failure.node);
    node->torn_down.push_back(failure);
  }
  return run;
}

std::size_t Job::connected() const {
  return static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(),
                    [](const auto& entry) { return entry.second.connected(); }));
}

// ---------------------------------------------------------------- reading

Job::Job(Shared& shared, const RunRecord& from, Instant now)
    : shared_(shared),
      spec_(from.job.spec),
      asked_(from.job.asked),
      run_(from.job.run),
      aliases_(from.job.aliases.begin(), from.job.aliases.end()),
      epoch_(from.job.epoch + 1),
      now_(now),
      phase_(from.job.phase),
      budget_(spec_.policy),
      faults_(spec_.faults, from.job.faults_fired),
      quarantine_(spec_.policy.quarantine) {
  read_back_ = true;
  restore(from.job);
  restore(from.progress);
  if (from.life) restore_life(*from.life, from);
  for (const NodeRecord& node : from.nodes)
    restore(node);
  // Moments that moved are written down where they are now: read again under another clock they
  // would no longer be in the order in which they came.
  if (set_back_) touch_all();
  hold_losses(now_ + spec_.policy.recovery_window);
  liveness_check_at_ = now_;
  if (from.job.server_left) {
    server_left_ = true;
    given_up_until_ = now_ + spec_.policy.server_grace;
    fence_off(now_);  // who heard the goodbye is stopping, the others have a lease
    return;
  }
  if (finished()) {
    for (const auto& [name, member] : members_) {
      if (!member.leaving && !confined(name)) unread_.insert(name);
    }
    over_at_ = now_;
    end();
    return;
  }
  resume_phase();
  if (life_ && !life_->ended) act(OpenStore{spec_.job, life_->generation});
  recovered_ = "the server was started again and goes on from its journal";
  emit(job_event(event::ServerRecovered{*recovered_}));
  end();
}

void Job::restore(const JobRecord& from) {
  generation_ = from.generation;
  last_incarnation_ = from.last_incarnation;
  state_lost_ = from.state_lost;
  started_at_ = past(from.started);
  std::vector<Instant> charges;
  for (const WallTime at : from.charges)
    charges.push_back(past(at));
  budget_.restore(from.restarts_used, charges);
  restore_offenders(from);
  reason_ = from.reason;
  wait_for_max_ = from.wait_for_max;
  reforming_ = from.reforming;
  round_opened_at_ = past(from.round_opened);
  join_deadline_ = round_opened_at_ + spec_.policy.join_timeout;
  if (from.join_until) {
    const Instant told = now_ + std::chrono::microseconds(*from.join_until - wall(now_));
    join_deadline_ = std::max(join_deadline_, std::min(told, now_ + spec_.policy.join_timeout));
  }
  // Nobody could join while no server was there.
  join_deadline_ = std::max(join_deadline_, now_ + spec_.policy.recovery_window);
  if (from.stop) {
    stop_ = new_stop(from.stop->why, from.stop->planned, from.stop->reason);
    stop_->began = past(from.stop->began).value_or(now_);
    stop_->give_up_at = stop_->give_up_at + spec_.policy.recovery_window;
  }
  if (from.backoff_until) {
    backoff_until_ = std::min(now_ + std::chrono::microseconds(*from.backoff_until - wall(now_)),
                              now_ + spec_.policy.restart_backoff_max);
  }
  if (from.recovery) {
    recovery_ = Recovery{past(from.recovery->failed), past(from.recovery->detected),
                         past(from.recovery->stopped)};
  }
  if (from.fenced) {
    fenced_until_ =
        std::min(now_ + std::chrono::microseconds(*from.fenced - wall(now_)), now_ + fence_time());
  }
  grown_at_ = past(from.grown);
  ever_execed_ = from.ever_execed;
  kept_ = from.kept;
  last_failure_ = from.last_failure;
  for (const auto& [at, signal] : from.leaves)
    leaves_.emplace_back(past(at), signal);
  last_leave_signal_ = from.last_leave_signal;
  stop_requested_by_ = from.stop_requested_by;
  drained_ = from.drained;
  outcome_ = from.outcome;
  if (from.finished) finished_at_ = past(*from.finished);
}

void Job::restore_offenders(const JobRecord& from) {
  for (const OffenderRecord& known : from.offenders) {
    Offender offender;
    for (const WallTime at : known.causes)
      offender.causes.push_back(past(at));
    offender.times = known.times;
    if (known.until) offender.until = now_ + std::chrono::microseconds(*known.until - wall(now_));
    quarantine_.restore(known.node, std::move(offender), now_);
  }
}

void Job::restore(const ProgressRecord& from) {
  reports_steps_ = from.reports_steps;
  best_step_ = from.best_step;
  best_checkpoint_ = from.best_checkpoint;
  idle_generations_ = from.idle_generations;
  budget_.restore_rows(from.failures_in_row, from.losses_in_row);
}

void Job::restore_life(const LifeRecord& from, const RunRecord& run) {
  Life life;
  life.generation = from.generation;
  life.ranks = from.ranks;
  life.master_addr = from.master_addr;
  life.master_port = from.master_port;
  life.ended = run.job.life_ended;
  life.rose = run.progress.rose;
  life.committed_at = past(run.job.committed);
  life.running_at = past(run.job.running);
  life.parted_at = past(run.job.parted);
  life.kept_at = past(run.progress.kept);
  if (run.job.recovered) {
    life.recovered = run.job.recovered->event;
    life.recovers_from = past(run.job.recovered->failed);
  }
  for (const MemberRanks& ranks : life.ranks) {
    life.group_ranks[ranks.node] = ranks.group_rank;
    life.world_size += ranks.count;
  }
  committed_attempt_ = from.attempt;
  life_ = std::move(life);
}

void Job::restore(const NodeRecord& from) {
  if (from.member) {
    Member& member = members_[from.node];
    member.facts = from.member->facts;
    member.observed_addr = from.member->observed_addr;
    member.incarnation = from.member->incarnation;
    member.role = from.member->role;
    member.leaving = from.member->leaving;
    member.past = from.member->past;
    member.returned = from.member->returned;
    member.work = from.member->work;
    member.heard_at = now_;
    member.stream_lost_at = now_;
    if (from.member->works) working_.insert(from.node);
  } else if (from.gone) {
    gone_[from.node] = *from.gone;
  }
  if (!life_ || ranks_of(from.node) == nullptr) return;
  if (from.started) life_->announced.insert(from.node);
  life_->exited.insert(from.exited.begin(), from.exited.end());
  life_->done.insert(from.done.begin(), from.done.end());
  for (const CauseRecord& cause : from.causes) {
    life_->note({cause.failure, past(cause.reported), past(cause.happened), cause.order,
                 cause.agent_signaled, cause.stops_agent, cause.hang, past(cause.spoke)});
  }
  life_->torn_down.insert(life_->torn_down.end(), from.torn_down.begin(), from.torn_down.end());
}

// Everyone comes back within the recovery window or is lost; until then the phase waits.
void Job::resume_phase() {
  if (phase_ == Phase::kStarting) {
    for (const MemberRanks& ranks : life_->ranks) {
      if (members_.contains(ranks.node) && !life_->announced.contains(ranks.node) &&
          !all_done(ranks.node)) {
        life_->unstarted.insert(ranks.node);
      }
    }
  }
  if (phase_ == Phase::kRecovering) recovering_until_ = now_ + spec_.policy.recovery_window;
  next_attempt_ = first_attempt();
}

// An agent may still have been asked by the server before this one: its attempts are not ours.
Attempt Job::first_attempt() const {
  return static_cast<Attempt>(epoch_ - 1) << 16U;
}

}  // namespace muster::rendezvous
