// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/job.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "proto/base/check.h"

namespace muster::rendezvous {

const char* message_name(const AgentBody& body) {
  static constexpr std::array kNames{
      "join",           "heartbeat", "prepare_answer", "workers_started", "worker_exited",
      "stop_confirmed", "leave",     "chaos_fired",    "outcome_seen"};
  static_assert(kNames.size() == std::variant_size_v<AgentBody>);
  return kNames.at(body.index());
}

Job::Job(Shared& shared, const JobSpec& spec, RunId run, const Reattach* known, Instant now)
    : shared_(shared),
      spec_(spec),
      asked_{spec.min_nodes, spec.max_nodes},
      run_(std::move(run)),
      now_(now),
      started_at_(now),
      budget_(spec.policy),
      faults_(spec.faults),
      quarantine_(spec.policy.quarantine) {
  open_round(FormReason::kStart, true);
  if (known != nullptr) {
    adopt(*known);
  } else {
    emit(started_event());
  }
}

Job::~Job() {
  shared_.sessions.detach_all(this);
}

void Job::end() {
  stirred_ = true;
  advance();
  if (stop_ && runs() && stopping_nodes().empty()) stop_.reset();
  checkpoint_rose_ = false;
  if (!drained_.empty()) dismiss_drained();
  check_over();
  say_waiting();
}

void Job::advance() {
  // A pass moves the phase by one. The longest way in one step: stopping, backoff, forming,
  // preparing, and back to forming once for every member that falls out.
  const std::size_t most = 16 + 2 * members_.size();
  for (std::size_t pass = 0; advance_once(); ++pass)
    MUSTER_CHECK(pass < most);
}

bool Job::advance_once() {
  if (stop_requested_by_ && working_.empty() && phase_ != Phase::kStopping && !finished()) {
    finish_stopped(143, ExitClass::kStopped, "stopped by " + *stop_requested_by_);
    return true;
  }
  switch (phase_) {
    case Phase::kForming: return try_publish();
    case Phase::kPreparing: return try_commit();
    case Phase::kStarting: return try_running();
    case Phase::kRunning: return check_running();
    case Phase::kStopping: return try_settle();
    case Phase::kRecovering: return end_recovery();
    case Phase::kBackoff:
      if (now_ < backoff_until_ && !everyone_left()) return false;
      phase_ = Phase::kForming;
      return true;
    case Phase::kFinished: return false;
  }
  check_failed("Phase in range", __FILE__, __LINE__);
}

Envelope Job::envelope(const Member& member, Generation generation) const {
  return {spec_.job, run_, generation, member.facts.name, member.incarnation, epoch_};
}

void Job::send(const Member& member, Generation generation, ServerBody body) {
  if (!member.session) return;
  act(Send{*member.session, {envelope(member, generation), std::move(body)}});
}

void Job::send_to(SessionId session, const NodeName& node, Incarnation incarnation,
                  Generation generation, ServerBody body) {
  act(Send{session, {{spec_.job, run_, generation, node, incarnation, epoch_}, std::move(body)}});
}

void Job::stale(SessionId session, const AgentMessage& message) {
  send_to(session, message.envelope.node, message.envelope.incarnation, generation_,
          Stale{message_name(message.body),
                {spec_.job, run_, generation_, message.envelope.node, message.envelope.incarnation,
                 epoch_}});
}

JobEvent Job::job_event(EventBody body) const {
  JobEvent event;
  if (generation_ != kNoGeneration) event.generation = generation_;
  event.body = std::move(body);
  return event;
}

JobEvent Job::started_event() const {
  JobEvent event;
  event.body = event::JobStarted{spec_.min_nodes, spec_.max_nodes, spec_.policy.max_restarts};
  return event;
}

JobEvent Job::running_event() const {
  return job_event(event::GenerationRunning{life_->form, *life_->running_at - life_->committed_at});
}

JobEvent Job::node_event(const NodeName& node, EventBody body) const {
  JobEvent event = job_event(std::move(body));
  event.node = node;
  return event;
}

void Job::emit(JobEvent event) {
  act(Emit{spec_.job, run_, std::move(event)});
}

void Job::publish_event(JobEvent event) {
  for (const auto& [name, member] : members_)
    send(member, JobEventNotice{event, 0s});
  emit(std::move(event));
}

Member* Job::find(const NodeName& node) {
  const auto found = members_.find(node);
  return found == members_.end() ? nullptr : &found->second;
}

std::vector<NodeName> Job::names() const {
  std::vector<NodeName> names;
  for (const auto& [name, member] : members_)
    names.push_back(name);
  return names;
}

void Job::said(const Attachment& from, SessionId session, const AgentMessage& message,
               Instant now) {
  begin(now);
  const Envelope& envelope = message.envelope;
  Member* member = find(from.node);
  const bool is_its_stream = member != nullptr && member->session == session;
  const bool current = envelope.job == spec_.job && envelope.node == from.node &&
                       envelope.incarnation == from.incarnation &&
                       (envelope.run.empty() || is_run(envelope.run));
  if (is_its_stream) member->heard_at = now;
  if (server_left_) return;
  if (!is_its_stream && std::holds_alternative<OutcomeSeen>(message.body) && finished()) {
    return;  // one of an earlier life, which asked late and was answered
  }
  if (!is_its_stream || !current) {
    stale(session, message);
  } else if (!std::visit([&](const auto& body) { return on(*member, envelope, body); },
                         message.body)) {
    stale(session, message);
  } else if (!std::holds_alternative<Heartbeat>(message.body) || checkpoint_rose_) {
    end();  // a heartbeat, by far the most frequent, changes no phase
  }
}

void Job::tick(Instant now) {
  begin(now);
  if (server_left_) return;
  check_losses();
  end_quarantines();
  if (phase_ == Phase::kPreparing && now >= round_->deadline) {
    const std::set<NodeName> silent = round_->unanswered;
    for (const NodeName& name : silent) {
      if (Member* member = find(name)) set_aside(*member, "did not answer Prepare");
    }
    reopen_round();
  }
  if (phase_ == Phase::kStarting && now >= started_by()) {
    const std::set<NodeName> unstarted = life_->unstarted;
    for (const NodeName& name : unstarted) {
      lose(name,
           "its workers were not started within " + format_duration(spec_.policy.join_timeout));
    }
  }
  if (const auto due = recovered_due(); due && now >= *due) tell_recovered();
  if (stop_ && now >= stop_->give_up_at) {
    const std::string why =
        "did not confirm its stop within " + format_measured(now - stop_->began);
    for (const NodeName& name : stopping_nodes())
      lose(name, why);
  }
  end();
}

// Until when the first progress of a generation that follows a failure is waited for.
std::optional<Instant> Job::recovered_due() const {
  if (phase_ != Phase::kRunning || !life_->recovered) return std::nullopt;
  return *life_->running_at + kHealthyTime;
}

// Until when the workers of the generation must have been started.
Instant Job::started_by() const {
  return std::max(life_->committed_at + spec_.policy.join_timeout, hold_losses_until_);
}

std::optional<Instant> Job::phase_deadline() const {
  switch (phase_) {
    case Phase::kForming: return forming_deadline_;
    case Phase::kPreparing: return round_->deadline;
    case Phase::kStarting: return started_by();
    case Phase::kRunning: return earlier(recovered_due(), growth_due_);
    case Phase::kStopping: return stop_->settle_at;
    case Phase::kBackoff: return backoff_until_;
    case Phase::kRecovering: return recovery_due_;
    case Phase::kFinished: return std::nullopt;
  }
  check_failed("Phase in range", __FILE__, __LINE__);
}

std::optional<Instant> Job::next_deadline() const {
  if (server_left_) return given_up_until_;
  if (finished()) return over_ ? forgotten_at() : over_at_;
  std::optional<Instant> next = earlier(phase_deadline(), say_waiting_at_);
  next = earlier(next, quarantine_.next_release());
  if (!members_.empty()) next = earlier(next, liveness_check_at_);
  if (stop_ && !working_.empty()) next = earlier(next, stop_->give_up_at);  // end() keeps it true
  return next;
}

// A run of an earlier server is kept while its agents may still come for the outcome, whatever was
// done to the clock meanwhile; any run while workers of it may live where it cannot see them, since
// the next one must know.
Instant Job::forgotten_at() const {
  Instant until = finished_at_ + shared_.options.limits.outcome_kept;
  if (read_back_ || state_lost_) {
    until = std::max(until, shared_.started_at + spec_.policy.server_grace + Duration{1});
  }
  return fenced_until_ ? std::max(until, *fenced_until_) : until;
}

bool Job::forgettable(Instant now) const {
  if (given_up_until_) return now >= *given_up_until_;
  return over_ && now >= forgotten_at();
}

}  // namespace muster::rendezvous
