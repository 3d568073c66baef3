// SPDX-License-Identifier: Apache-2.0
//
// The outcome: decided once, told to everyone, and kept for those who ask late.
#include <algorithm>
#include <iterator>

#include "launcher/rendezvous/core/job.h"
#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

// A member that cannot be reached may come back for the outcome at least this long.
constexpr Duration kShortestReading = 10s;

constexpr std::size_t kNamed = 1024;  // of nodes, in a text

// "a", "a and b", "a, b and c".
std::string enumerated(const std::vector<std::string>& parts) {
  std::string text;
  const std::size_t shown = std::min(parts.size(), kNamed);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return parts.size() > shown ? text + ", …" : text;
}

Duration reading_time(const JobPolicy& policy) {
  return std::max(policy.node_timeout, kShortestReading);
}

}  // namespace

void Job::finish_stopped(int exit_code, ExitClass exit_class, const std::string& text) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kStopped;
  outcome.exit_code = exit_code;
  outcome.exit_class = exit_class;
  outcome.text = text;
  finish(std::move(outcome));
}

// Names who is missing, as far as that is known: the members of the last generation, else the node
// ranks that nobody has, where all nodes gave one.
std::string Job::missing_nodes() const {
  std::vector<std::string> who;
  if (life_) {
    for (const MemberRanks& ranks : life_->ranks) {
      const auto member = members_.find(ranks.node);
      if (member == members_.end() || member->second.leaving) who.push_back(ranks.node);
    }
    if (who.empty()) return "";
    return (who.size() == 1 ? ": node " : ": nodes ") + enumerated(who) + " of generation " +
           std::to_string(life_->generation);
  }
  std::set<std::uint32_t> taken;
  for (const auto& [name, member] : members_) {
    if (member.leaving) continue;
    if (!member.facts.node_rank) return "";
    taken.insert(*member.facts.node_rank);
  }
  if (taken.empty()) return "";
  for (std::uint32_t rank = 0; rank < spec_.max_nodes; ++rank) {
    const std::uint32_t first = rank;
    while (rank < spec_.max_nodes && !taken.contains(rank))
      ++rank;
    if (rank == first) continue;
    who.push_back(std::to_string(first));
    if (rank - first == 2) who.push_back(std::to_string(rank - 1));
    if (rank - first > 2) who.back() += "-" + std::to_string(rank - 1);
  }
  const bool one = spec_.max_nodes - taken.size() == 1;
  const bool nobody_left = last_incarnation_ == taken.size();  // each that comes gets the next
  return (one ? ": node rank " : ": node ranks ") + enumerated(who) + " of " +
         std::to_string(spec_.max_nodes) +
         (nobody_left ? " never joined"
          : one       ? " is not here"
                      : " are not here");
}

void Job::time_out_joining() {
  std::string who;
  std::uint32_t joined = 0;
  std::string refusals;
  for (const auto& [name, member] : members_) {
    if (member.leaving) continue;
    if (++joined <= kNamed) who += (who.empty() ? "" : ", ") + name;
    if (!member.refusal.empty() && member.ask_again_at > now_) {
      refusals += "; node " + name + ": " + member.refusal;
    }
  }
  const std::uint32_t missing = joined < spec_.min_nodes ? spec_.min_nodes - joined : 0;
  Outcome outcome;
  outcome.kind = OutcomeKind::kJoinTimeout;
  outcome.exit_code = 75;
  outcome.exit_class = ExitClass::kJoinTimeout;
  outcome.text = std::to_string(joined) + " of " + std::to_string(spec_.min_nodes) +
                 " nodes joined within " + format_duration(spec_.policy.join_timeout) + " (" +
                 (who.empty() ? "none" : who) + "); " + std::to_string(missing) + " missing" +
                 (missing > 0 ? missing_nodes() : "") + refusals;
  outcome.first_cause = last_failure_;
  finish(std::move(outcome));
}

// The last member left by a signal.
void Job::finish_left() {
  finish_stopped(128 + last_leave_signal_, ExitClass::kSignal,
                 "stopped by " + signal_name(last_leave_signal_));
}

void Job::finish(Outcome outcome) {
  MUSTER_CHECK(!outcome_.has_value());
  if (life_ && !life_->ended) end_life(true);
  outcome.restarts_used = budget_.used();
  outcome.max_restarts = budget_.max();
  outcome.duration = now_ - started_at_;
  outcome.goodput = goodput();
  if (outcome.kind == OutcomeKind::kSucceeded) outcome.text = "all ranks exited 0";
  outcome_ = std::move(outcome);
  phase_ = Phase::kFinished;
  finished_at_ = now_;
  round_.reset();
  stop_.reset();
  for (const Fault* fault : faults_.unfired()) {
    publish_event(job_event(event::ChaosMissed{fault->text, describe(fault->on)}));
  }
  publish_event(job_event(event::JobFinished{*outcome_}));
  for (const auto& [name, member] : members_) {
    if (member.leaving && !member.connected()) continue;
    if (confined(name)) continue;
    unread_.insert(name);
    send(member, OutcomeNotice{*outcome_});
  }
  over_at_ = now_ + reading_time(spec_.policy);
  dismiss_confined();
}

std::string Job::ended_in_quarantine() const {
  return "it was in quarantine when the job ended: " + outcome_->text;
}

// The job ended without them: its outcome is not theirs.
void Job::dismiss_confined() {
  for (auto& [name, member] : members_) {
    if (!confined(name) || !member.session) continue;
    shared_.sessions.detach(*member.session);
    evict(*member.session, name, member.incarnation, ended_in_quarantine());
    member.session.reset();
    member.stream_lost_at = now_;
  }
}

double Job::goodput() const {
  const double whole = to_seconds(now_ - started_at_);
  return whole > 0 ? std::clamp(to_seconds(kept_) / whole, 0.0, 1.0) : 0.0;
}

// What runs counts as kept until it is lost.
double Job::goodput_so_far(Instant now) const {
  if (outcome_) return outcome_->goodput;
  const bool runs = life_ && !life_->ended && life_->running_at;
  const double kept = to_seconds(kept_ + (runs ? now - *life_->running_at : Duration{0}));
  const double whole = to_seconds(now - started_at_);
  return whole > 0 ? std::clamp(kept / whole, 0.0, 1.0) : 0.0;
}

bool Job::on(Member& member, const Envelope&, const OutcomeSeen&) {
  if (!finished()) return false;
  member.outcome_seen = true;
  unread_.erase(member.facts.name);
  return true;
}

// Until when a member that has not confirmed the outcome is waited for.
Instant Job::read_by(const Member& member) const {
  const Duration reading = reading_time(spec_.policy);
  const Instant since = member.connected() ? member.heard_at : member.stream_lost_at;
  // One that lives on but never confirms holds nobody up for ever.
  return std::clamp(since, finished_at_, finished_at_ + spec_.policy.stop_grace) + reading;
}

// `over_at_` is no later than the first end of a wait; it is looked at when it is due.
void Job::check_over() {
  if (!finished() || over_ || server_left_) return;
  if (!unread_.empty() && now_ >= *over_at_) {
    std::optional<Instant> next;
    for (auto name = unread_.begin(); name != unread_.end();) {
      const Instant until = read_by(members_.at(*name));
      if (until > now_) next = earlier(next, until);
      name = until <= now_ ? unread_.erase(name) : std::next(name);
    }
    over_at_ = next;
  }
  if (!unread_.empty()) return;
  over_ = true;
  act(JobOver{spec_.job, run_, *outcome_});
}

void Job::give_up_waiting(Instant now) {
  begin(now);
  unread_.clear();
  check_over();
}

void Job::server_leaves(const std::string& reason, Instant now) {
  begin(now);
  if (finished() || server_left_) return;
  publish_event(job_event(event::ServerGoing{reason}));
  for (const auto& [name, member] : members_)
    send(member, ServerLeaving{reason});
  server_left_ = true;
  stirred_ = true;
}

}  // namespace muster::rendezvous
