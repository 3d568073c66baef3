// SPDX-License-Identifier: Apache-2.0
//
// A generation has stopped everywhere: why, what it costs, and what follows.
#include <algorithm>

#include "launcher/rendezvous/core/job.h"
#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

// A worker that a stop signal ended is a stop if some agent of the job gets that signal within
// this time, before or after (contracts §2). Such an end is settled no earlier.
constexpr Duration kSameSignal = 2s;

// Of a generation that was stopped without a failure.
FormReason form_reason(StopWhy why) {
  switch (why) {
    case StopWhy::kGrow: return FormReason::kNodeJoined;
    case StopWhy::kRequested: return FormReason::kRequested;
    case StopWhy::kStateLost: return FormReason::kStateLost;
    default: return FormReason::kNodeLeft;
  }
}

}  // namespace

// It ended by a signal that an agent of the job received as well.
bool Job::is_stop(const Cause& cause) const {
  if (cause.agent_signaled) return true;
  return std::any_of(leaves_.begin(), leaves_.end(), [&](const auto& leave) {
    const Duration apart =
        leave.first > cause.happened ? leave.first - cause.happened : cause.happened - leave.first;
    return ending_signal(cause.failure) == leave.second && apart <= kSameSignal;
  });
}

// A node of the generation leaves by `signal`, of which its workers may have heard first: the
// leave began with the first of them that it ended.
void Job::note_parting(const Member& member, int signal, Instant left) {
  if (!life_ || life_->ended) return;
  const NodeName& node = member.facts.name;
  if (works_in_life(member) && !all_done(node)) life_->parted_at = earlier(life_->parted_at, left);
  for (const Cause& cause : life_->causes) {
    const bool by_it = cause.failure.node == node && ending_signal(cause.failure) == signal &&
                       left <= cause.happened + kSameSignal;
    if (by_it) life_->parted_at = earlier(life_->parted_at, cause.happened);
  }
}

// Once a stop was announced, ranks lose their peers and fail over that, often before they hear of
// the stop themselves: what ends then is no failure. It began with our order, or with the first
// sign that a node leaves, of which we may hear after those that it took along. Between nodes
// that is as exact as any order in time; what just before it was a crash is one.
bool Job::follows_a_stop(const Cause& cause) const {
  if (cause.failure.kind == FailureKind::kNodeLost) return false;
  const bool announced =
      stop_ && stop_->why != StopWhy::kFailure && stop_->why != StopWhy::kStateLost;
  if (announced && cause.happened >= stop_->began) return true;
  if (!life_->parted_at) return false;
  const Duration doubt = may_follow_a_lost_peer(cause.failure) ? kOrderDoubt : Duration{0};
  return cause.happened + doubt >= *life_->parted_at;
}

// Until when it could turn out to be a stop; nullopt: it is what it is.
std::optional<Instant> Job::evidence_due(const Cause& cause) const {
  if (!cause.agent_signaled) {
    const bool may_be_stop = is_stop_signal(cause) && !is_stop(cause);
    return may_be_stop ? std::optional(cause.happened + kSameSignal) : std::nullopt;
  }
  const auto member = members_.find(cause.failure.node);
  const bool leave_is_on_its_way = member != members_.end() && !member->second.leaving;
  return leave_is_on_its_way ? std::optional(cause.reported + kLeaveEvidence) : std::nullopt;
}

// When we know of what the agents of this generation did at `then`: who was without a stream tells
// it on its return.
Instant Job::heard_of_all(Instant then) const {
  Instant heard = then;
  // One that comes and goes holds nobody up for ever.
  const Instant latest = std::max(then, hold_losses_until_) + spec_.policy.node_timeout;
  for (const auto& [name, member] : members_) {
    if (member.leaving || member.away_since > then || !life_->group_ranks.contains(name)) continue;
    if (!member.connected()) heard = std::max(heard, lost_at(member));
    if (member.connected() && member.back_at) {
      heard = std::max(heard, *member.back_at + kLeaveEvidence);
    }
  }
  return std::min(heard, latest);
}

std::optional<Verdict> Job::verdict() const {
  std::vector<Cause> failures;
  for (const Cause& cause : life_->causes) {
    if (!is_stop(cause) && !follows_a_stop(cause)) failures.push_back(cause);
  }
  const std::size_t kept = shared_.options.limits.failures_kept;
  std::optional<Verdict> settled = settle_first_cause(failures, kept);
  if (!settled) return settled;
  for (const Failure& victim : life_->torn_down) {
    if (settled->victims.size() < kept) settled->victims.push_back(victim);
  }
  return settled;
}

// Whether another verdict would follow if `cause` turned out to be a stop.
bool Job::may_excuse(const Cause& cause, const Verdict& settled) const {
  const Cause& first = settled.first;
  if (cause.failure.node == first.failure.node) return true;
  return first.failure.kind != FailureKind::kNodeLost &&
         first.happened + kOrderDoubt >= cause.happened;
}

// When all that may change the verdict is known; nullopt: it is.
std::optional<Instant> Job::evidence_complete_at(const std::optional<Verdict>& settled) const {
  if (everyone_left()) return std::nullopt;  // nobody is left to say more
  std::optional<Instant> last;
  for (const Cause& cause : life_->causes) {
    const std::optional<Instant> due = evidence_due(cause);
    if (!due || follows_a_stop(cause) || (settled && !may_excuse(cause, *settled))) continue;
    last = std::max(*due, last.value_or(*due));
  }
  return last ? std::optional(heard_of_all(*last)) : std::nullopt;
}

bool Job::try_settle() {
  stop_->settle_at.reset();
  if (!working_.empty()) return false;  // also one that came back with workers meanwhile
  std::optional<Verdict> settled = verdict();
  if (const auto at = evidence_complete_at(settled); at && *at > now_) {
    stop_->settle_at = at;
    return false;
  }
  const bool succeeded = life_->done.size() == life_->world_size;
  end_life(succeeded || !settled);
  if (succeeded) {
    finish(Outcome{});
  } else if (stop_requested_by_) {
    finish_stopped(143, ExitClass::kStopped, "stopped by " + *stop_requested_by_);
  } else if (everyone_left()) {
    // Whatever failed before: the stop came before the job's end, and nobody is there to go on.
    if (settled) tell_failure(*settled);
    finish_left();
  } else if (settled) {
    settle_failure(*settled);
  } else if (ended_by_leaves() && out_of_patience()) {
    give_up(nullptr);
  } else {
    schedule(form_reason(stop_->why), Charge{});
  }
  return true;
}

// Without a failure: as it was ordered, or because all that looked like one belonged to leaves.
bool Job::ended_by_leaves() const {
  return stop_->why == StopWhy::kLeave || stop_->why == StopWhy::kFailure;
}

// `kept`: what it did since its last checkpoint is not lost.
void Job::end_life(bool kept) {
  life_->ended = true;
  act(CloseStore{spec_.job, life_->generation});
  tell_recovered();
  if (!life_->running_at) return;
  // Jobs that report no steps are taken at their word: all of it counted.
  const Instant until = kept || !reports_steps_ ? now_ : *life_->kept_at;
  kept_ += until - *life_->running_at;
  if (now_ - *life_->running_at >= kHealthyTime) budget_.progressed();
}

void Job::tell_failure(const Verdict& verdict) {
  const Cause& first = verdict.first;
  last_failure_ = first.failure;
  JobEvent event = job_event(event::GenerationFailed{first.failure, verdict.victims});
  event.node = first.failure.node;
  event.rank = first.failure.rank;
  event.local_rank = first.failure.local_rank;
  event.pid = first.failure.pid;
  publish_event(std::move(event));
}

void Job::settle_failure(const Verdict& verdict) {
  const Cause& first = verdict.first;
  recovery_ = Recovery{first.happened, first.reported, now_};
  tell_failure(verdict);
  if (first.failure.kind == FailureKind::kSpawn && !ever_execed_) {
    fail(verdict, "");
    return;
  }
  if (out_of_patience()) {
    give_up(&verdict);
    return;
  }
  const bool lost = first.failure.kind == FailureKind::kNodeLost;
  const Charge charge =
      lost ? budget_.node_lost(spec_.min_nodes < spec_.max_nodes, now_, shared_.rng)
           : budget_.worker_failed(now_, shared_.rng);
  if (!charge.allowed) {
    fail(verdict, "; " + budget_.words(now_));
    return;
  }
  blame(first.failure);
  schedule(lost ? FormReason::kNodeLost : FormReason::kWorkerFailure, charge);
}

// A generation ended without progress. One that was stopped to grow, or by request, is not asked:
// it was cut short on purpose, and not for good.
bool Job::out_of_patience() {
  if (!life_->rose) ++idle_generations_;
  return spec_.policy.max_no_progress > 0 && idle_generations_ >= spec_.policy.max_no_progress;
}

void Job::give_up(const Verdict* verdict) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kNoProgress;
  outcome.exit_code = 78;
  outcome.exit_class = ExitClass::kNoProgress;
  const std::uint32_t idle = idle_generations_;
  outcome.text = "no progress in " +
                 (idle == 1 ? "a generation" : std::to_string(idle) + " generations in a row");
  outcome.text += !reports_steps_ ? ": no step was ever reported"
                  : best_checkpoint_ == 0
                      ? ": the highest step stayed " + std::to_string(best_step_)
                      : ": the highest checkpoint step stayed " + std::to_string(best_checkpoint_);
  if (verdict != nullptr) {
    outcome.text += "; last, " + describe(verdict->first.failure);
    outcome.first_cause = verdict->first.failure;
    outcome.victims = verdict->victims;
  }
  finish(std::move(outcome));
}

void Job::schedule(FormReason reason, const Charge& charge) {
  publish_event(job_event(
      event::RestartScheduled{budget_.used(), budget_.max(), charge.charged, charge.delay}));
  open_round(reason, false);
  backoff_until_ = now_ + charge.delay;
  phase_ = Phase::kBackoff;
}

void Job::fail(const Verdict& verdict, const std::string& why) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kFailed;
  outcome.exit_code = exit_code_of(verdict.first.failure);
  outcome.exit_class = ExitClass::kWorker;
  outcome.text = describe(verdict.first.failure) + why;
  outcome.first_cause = verdict.first.failure;
  outcome.victims = verdict.victims;
  finish(std::move(outcome));
}

}  // namespace muster::rendezvous
