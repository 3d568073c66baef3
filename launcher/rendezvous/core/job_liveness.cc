// SPDX-License-Identifier: Apache-2.0
//
// Who is there: heartbeats, broken streams, losses, and leaving.
#include <algorithm>

#include "launcher/rendezvous/core/job.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t kLeavesKept = 16;
constexpr std::size_t kMostLeaves = 1000;  // what a journal may hold is a little more
constexpr int kLastSignal = 64;

// An agent that hears nothing gives its stream up: after the node time-out, or when gRPC's pings
// are not answered (proto/transport/grpc_settings.h).
constexpr Duration kPingPatience = 10s;
// From the end of an agent's lease until what it kills is gone, on a host that is busy.
constexpr Duration kKillTime = 10s;
// What is in the sockets after a stall is read within this time.
constexpr Duration kStallEcho = 1s;

}  // namespace

bool Job::on(Member& member, const Envelope& envelope, const Heartbeat& heartbeat) {
  member.progress = heartbeat.progress;
  member.suspended = heartbeat.suspended;
  if (member.progress.size() > member.facts.slots) member.progress.resize(member.facts.slots);
  // What is saved while the others stop is progress too.
  const bool counts = phase_ == Phase::kRunning || phase_ == Phase::kStopping;
  if (counts && works_in_life(member)) {
    note_progress(member);
    if (phase_ == Phase::kRunning && envelope.generation == life_->generation)
      note_first_progress(member);
  }
  send(member, HeartbeatAck{heartbeat.sequence});
  return true;
}

void Job::note_progress(const Member& member) {
  bool progressed = false;
  const bool had_checkpoint = best_checkpoint_ > 0;
  bool rose = false;
  for (const RankProgress& rank : member.progress) {
    reports_steps_ = true;
    progressed = progressed || rank.step > best_step_;
    best_step_ = std::max(best_step_, rank.step);
    if (rank.checkpoint_step.value_or(0) > best_checkpoint_) {
      best_checkpoint_ = *rank.checkpoint_step;
      life_->kept_at = now_;
      progressed = true;
      rose = true;
      checkpoint_rose_ = spec_.policy.grow == Grow::kCheckpoint;
    }
  }
  if (progressed) budget_.progressed();
  // Steps count only where no checkpoint was ever reported.
  if (!rose && !(progressed && !had_checkpoint)) return;
  life_->rose = true;
  idle_generations_ = 0;
}

void Job::note_first_progress(const Member& member) {
  if (!life_->recovered || member.progress.empty()) return;
  Instant first = now_;
  for (const RankProgress& rank : member.progress)
    first = std::min(first, now_ - std::clamp(rank.age, 0ns, now_ - life_->committed_at));
  life_->recovered->first_progress = first - life_->recovers_from;
  tell_recovered();
}

bool Job::on(Member& member, const Envelope&, const Leave& leave) {
  if (finished() || member.leaving) return true;
  const NodeName& name = member.facts.name;
  member.leaving = true;
  touch(name);
  const int signal = leave.signal > 0 && leave.signal <= kLastSignal ? leave.signal : 0;
  ++picture_version_;
  // On a stream that was broken meanwhile it comes late; no leave is older than its agent is here.
  const Instant since = life_ ? life_->committed_at : started_at_;
  const Instant left = now_ - std::clamp(leave.age, Duration{0}, now_ - since);
  if (signal > 0) {
    leaves_.emplace_back(left, signal);
    forget_leaves();
  }
  publish_event(node_event(name, event::NodeLeft{event::NodeLeft::Why::kLeave}));
  if (!anyone_remains()) last_leave_signal_ = signal;
  if (phase_ == Phase::kPreparing && round_->chosen.contains(name)) reopen_round();
  if (signal > 0) note_parting(member, signal, left);
  // With its ranks finished it takes nothing with it.
  if (!works_in_life(member) || all_done(name)) return true;
  std::string reason = "node " + name + " leaves";
  if (signal > 0) reason += ": " + signal_name(signal);
  begin_stop(StopWhy::kLeave, true, std::move(reason));
  return true;
}

// Those of this generation are evidence until it is settled.
void Job::forget_leaves() {
  const auto old = [this](const auto& leave) {
    return !life_ || life_->ended || leave.first < life_->committed_at;
  };
  while (leaves_.size() > kMostLeaves || (leaves_.size() > kLeavesKept && old(leaves_.front())))
    leaves_.pop_front();
}

bool Job::anyone_remains() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return !entry.second.leaving; });
}

void Job::stream_lost(const Attachment& from, SessionId session, Instant now) {
  begin(now);
  const NodeName name = from.node;  // `from` goes with the session
  shared_.sessions.detach(session);
  Member* member = find(name);
  if (member == nullptr || member->session != session || server_left_) return;
  member->session.reset();
  member->stream_lost_at = now;
  const bool told_all = !member->back_at || now >= *member->back_at + kLeaveEvidence;
  if (told_all) member->away_since = now;
  if (now < stall_echo_until_) hold(*member);
  if (member->leaving && (finished() || !working_.contains(name))) {
    remove(name);
  } else if (!finished()) {
    // One that leaves ends its stream after its workers and their confirmation: a stream that
    // breaks before may come back with it.
    watch(*member);
  }
  end();
}

bool Job::counts_as_broken(const NodeName& node) const {
  const auto member = members_.find(node);
  return !finished() && !server_left_ && member != members_.end() && !member->second.leaving;
}

Instant Job::lost_at(const Member& member) const {
  const Instant due =
      member.connected()
          ? member.heard_at + spec_.policy.node_timeout
          : std::max(member.stream_lost_at + spec_.policy.reconnect_grace, member.held_until);
  return std::max(due, hold_losses_until_);
}

// Heartbeats only move a loss further away, so one bound for all is looked at when it is due and
// not at every heartbeat.
void Job::watch(const Member& member) {
  liveness_check_at_ =
      members_.size() == 1 ? lost_at(member) : std::min(liveness_check_at_, lost_at(member));
}

void Job::check_losses() {
  if (finished() || now_ < liveness_check_at_) return;
  std::vector<NodeName> lost;
  std::optional<Instant> next;
  for (const auto& [name, member] : members_) {
    const Instant at = lost_at(member);
    if (at <= now_) {
      lost.push_back(name);
    } else {
      next = earlier(next, at);
    }
  }
  liveness_check_at_ = next.value_or(now_ + spec_.policy.node_timeout);
  for (const NodeName& name : lost) {
    const Member& member = members_.at(name);
    lose(name, member.connected()
                   ? "no sign of it for " + format_measured(now_ - member.heard_at)
                   : "its stream broke " + format_measured(now_ - member.stream_lost_at) + " ago");
  }
}

void Job::lose(const NodeName& node, const std::string& why) {
  const Member& member = members_.at(node);
  const bool fails = works_in_life(member) && !member.leaving && !all_done(node);
  if (!member.leaving) {
    publish_event(node_event(node, event::NodeLeft{event::NodeLeft::Why::kLost}));
  }
  if (fails) {
    Cause cause;
    cause.failure.kind = FailureKind::kNodeLost;
    cause.failure.node = node;
    cause.failure.detail = why;
    cause.reported = now_;
    cause.happened = member.connected() ? member.heard_at : member.stream_lost_at;
    life_->note(std::move(cause));
  }
  if (member.session) {
    // It may only be slow to hear: then it kills its workers on waking.
    shared_.sessions.detach(*member.session);
    evict(*member.session, node, member.incarnation, why);
  }
  if (working_.contains(node)) fence_off(member.heard_at);
  remove(node);
  if (fails) begin_stop(StopWhy::kFailure, false, "node " + node + " is lost");
}

// Its agent counts the lease from the time it sent what we answered last, which was before we heard
// it, and kills what it has when the lease is over.
Duration Job::fence_time() const {
  return std::max(spec_.policy.server_grace, 2 * spec_.policy.heartbeat) + kKillTime;
}

void Job::fence_off(Instant heard) {
  wait_for_fence(heard + fence_time());
}

void Job::wait_for_fence(std::optional<Instant> until) {
  if (spec_.policy.fence == Fence::kStrict && until) {
    fenced_until_ = std::max(fenced_until_.value_or(Instant{}), *until);
  }
}

void Job::remove(const NodeName& node) {
  stopped_working(node);
  if (life_ && !life_->ended) life_->unstarted.erase(node);
  note_gone(members_.at(node));
  members_.erase(node);
  touch(node);
  unread_.erase(node);
  ++picture_version_;
  if (phase_ == Phase::kPreparing && round_->chosen.contains(node)) reopen_round();
}

void Job::hold_losses(Instant until) {
  hold_losses_until_ = std::max(hold_losses_until_, until);
}

void Job::shift_liveness(Duration by, Instant now) {
  // A deadline that was due at the start of the stall would be due again at its end, when what
  // was sent meanwhile may still be on its way: it gets two heartbeats.
  const Duration silence = std::max(spec_.policy.node_timeout - 2 * spec_.policy.heartbeat, 0ns);
  for (auto& [name, member] : members_) {
    member.heard_at = std::min(std::max(member.heard_at + by, now - silence), now);
    member.stream_lost_at = now;
  }
  liveness_check_at_ = now;
  if (round_) round_->deadline = round_->deadline + by;
  if (stop_) stop_->give_up_at = stop_->give_up_at + by;
}

void Job::hold(Member& member) {
  member.held_until = now_ + spec_.policy.recovery_window;
}

// After a stall as long as the agents' own patience a broken stream says nothing about its node:
// to the agents it was as if the server had gone and come back, and some are between two tries.
// Half of that patience, as it began before the stall. One that kept its stream is heard soon or
// silent in earnest.
void Job::note_stall(Duration by, Instant now) {
  begin(now);
  if (2 * by < std::min(spec_.policy.node_timeout, kPingPatience)) return;
  stall_echo_until_ = now_ + std::max(2 * spec_.policy.heartbeat, kStallEcho);
  for (auto& [name, member] : members_) {
    if (!member.connected()) hold(member);
  }
}

}  // namespace muster::rendezvous
