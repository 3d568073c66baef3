// SPDX-License-Identifier: Apache-2.0
//
// The stream to the server: opening it again and again, joining, heartbeats, and the lease.
// The lease is how long this node may act for the server without hearing from it. It counts from
// the *send* time of the last message that was answered: the server heard it later than that, so
// the server's own clock for this node never runs out after ours.
#include <algorithm>
#include <array>

#include "agent/core/machine.h"
#include "proto/base/check.h"

namespace muster::agent {
namespace {

// A retry must fit into --reconnect-grace (500 ms) several times; contracts §2 asks for the
// first within 50 ms. A second is the longest a node should be late for a server that is back.
constexpr Duration kFirstRetry = 50ms;
constexpr Duration kLastRetry = 1s;
// A connection that is neither refused nor made, and a Join without an answer, are tried anew.
constexpr Duration kOpenLimit = 10s;
constexpr Duration kAnswerLimit = 10s;
// Heartbeats whose answer is still of interest: older ones can only shorten the lease.
constexpr std::size_t kHeartbeatsKept = 64;

constexpr int kExitJoinTimeout = 75;
constexpr int kExitServerLost = 76;

const char* message_name(const ServerBody& body) {
  static constexpr std::array kNames{
      "JoinAccepted", "JoinRefused",    "Waiting",       "Prepare", "Commit", "StopOrder",
      "HeartbeatAck", "JobEventNotice", "OutcomeNotice", "Evicted", "Stale",  "ServerLeaving"};
  static_assert(kNames.size() == std::variant_size_v<ServerBody>);
  return kNames.at(body.index());
}

}  // namespace

// ---------------------------------------------------------------- the stream

void Agent::State::on(const Started& /*started*/) {
  if (started_) return;
  started_ = true;
  started_at_ = now_;
  connect();
}

void Agent::State::on(const LinkUp& /*up*/) {
  if (link_.state != Link::State::kOpening) return;
  link_.state = Link::State::kUp;
  link_.accepted = false;
  link_.left = false;
  new_stream_since_signal_ = signal_.has_value();
  link_.since = now_;
  link_.heard_at = now_;
  link_.history.speaks_muster = true;
  join_sent_at_ = now_;
  Join join{config_.spec, config_.node, std::nullopt};
  if (incarnation_ != 0) {
    Reattach reattach;
    reattach.run = run_;
    reattach.incarnation = incarnation_;
    reattach.generation = assignment_.generation;
    reattach.workers_running = any_alive();
    for (const Worker& worker : workers_) {
      if (worker.done()) reattach.ranks_done.push_back(worker.rank);
    }
    reattach.restarts_used = restarts_used_;
    reattach.epoch = epoch_;
    reattach.leaving = leave_.has_value();
    join.reattach = std::move(reattach);
  }
  send(assignment_.generation, std::move(join));
}

void Agent::State::on(const LinkDown& down) {
  if (link_.state == Link::State::kClosed) return;
  link_.history.speaks_muster = down.speaks_muster;
  link_failed(down.reason);
}

void Agent::State::connect() {
  const Duration delay = retry_delay();
  link_.state = Link::State::kOpening;
  link_.since = now_ + delay;
  ++link_.history.tries;
  act(Connect{delay});
}

void Agent::State::drop_link(std::string reason) {
  act(Disconnect{});
  link_failed(std::move(reason));
}

void Agent::State::link_failed(std::string reason) {
  if (link_.accepted) say(Severity::kInfo, "lost the stream to the server: " + reason);
  link_.state = Link::State::kClosed;
  link_.accepted = false;
  link_.left = false;
  link_.stop_confirmed = false;
  link_.farewell = 0;
  link_.history.reason = std::move(reason);
  link_.history.sent_away = false;
  ++link_.failures;
  if (reconnects()) connect();
}

// Once the end is settled another stream is worth it only for a node that leaves: the others wait
// for its word that it does, and that its workers are gone.
bool Agent::State::reconnects() const {
  if (!end_) return true;
  const auto farewell = farewell_end();
  return (leave_ && ever_accepted_ && any_not_over()) || (farewell && now_ < *farewell);
}

Duration Agent::State::retry_delay() {
  if (link_.failures == 0) return 0s;
  if (link_.failures == 1) return kFirstRetry;
  const std::uint32_t doublings = std::min(link_.failures - 1, 5U);  // 50 ms * 2^5 > 1 s
  const Duration plain = std::min(kLastRetry, kFirstRetry * (1 << doublings));
  // Up to a fifth earlier, never later: many agents that lost one server spread out.
  const auto fifth = static_cast<std::uint64_t>(plain.count() / 5);
  return plain - Duration(static_cast<Duration::rep>(rng_.below(fifth + 1)));
}

// ---------------------------------------------------------------- messages

void Agent::State::on(const ServerSaid& said_by_server) {
  const ServerMessage& message = said_by_server.message;
  if (link_.state != Link::State::kUp) return;
  link_.heard_at = now_;
  if (!is_current(message)) {
    say(Severity::kInfo, std::string("dropped a stale ") + message_name(message.body) +
                             " of generation " + std::to_string(message.envelope.generation));
    return;
  }
  std::visit([&](const auto& body) { said(message.envelope, body); }, message.body);
}

bool Agent::State::is_current(const ServerMessage& message) {
  const Envelope& envelope = message.envelope;
  if (envelope.job != config_.spec.job) return false;
  // What ends a Join speaks about identities that may not be ours; it decides for itself.
  if (std::holds_alternative<JoinAccepted>(message.body)) return !link_.accepted;
  if (std::holds_alternative<JoinRefused>(message.body)) return !link_.accepted;
  if (std::holds_alternative<Evicted>(message.body)) return true;
  if (envelope.incarnation != 0 && incarnation_ != 0 && envelope.incarnation != incarnation_) {
    return false;
  }
  if (envelope.epoch != 0 && envelope.epoch < epoch_) return false;
  if (!envelope.run.empty() && envelope.run != run_) {
    // A server that learnt on this stream that the run has another, older name has a new epoch.
    const bool renames = run_.empty() || (link_.accepted && envelope.epoch > epoch_);
    if (!renames) return false;
    run_ = envelope.run;
  }
  epoch_ = std::max(epoch_, envelope.epoch);
  return true;
}

void Agent::State::said(const Envelope& envelope, const JoinAccepted& accepted) {
  if (ever_accepted_) say(Severity::kInfo, "attached to the server again");
  link_.accepted = true;
  link_.failures = 0;
  link_.history.tries = 0;
  link_.history.reason.clear();
  ever_accepted_ = true;
  policy_ = accepted.policy;
  role_ = accepted.role;
  const bool other_run = !run_.empty() && !envelope.run.empty() && envelope.run != run_;
  const bool is_another = incarnation_ != 0 && envelope.incarnation != incarnation_;
  if (other_run && is_another) forget_run();
  if (prepared_) {
    // What was asked of an earlier incarnation is void; of this one the server commits again.
    prepared_->committed.reset();
    if (is_another) {
      prepared_.reset();
      release_port();
    }
  }
  if (!envelope.run.empty()) run_ = envelope.run;
  if (envelope.incarnation != 0) incarnation_ = envelope.incarnation;
  epoch_ = envelope.epoch;
  heartbeats_.clear();
  answered_at_ = join_sent_at_;
  heartbeat_at_ = now_ + policy_.heartbeat;
  if (envelope.generation <= assignment_.generation) report_again();
  send_leave();
}

void Agent::State::said(const Envelope& /*envelope*/, const JoinRefused& refused) {
  if (refused.why == JoinRefused::Why::kNotYet) {
    drop_link(refused.text);
    link_.history.sent_away = true;
    return;
  }
  sent_away_ = true;
  kill_workers();
  const bool server_leaves = refused.exit_code == kExitServerLost;
  end_with({refused.exit_code, server_leaves ? ExitClass::kServerLost : ExitClass::kUsage,
            std::nullopt, refused.text});
}

void Agent::State::said(const Envelope& /*envelope*/, const HeartbeatAck& ack) {
  if (link_.farewell != 0 && ack.sequence >= link_.farewell) farewell_heard_ = true;
  while (!heartbeats_.empty() && heartbeats_.front().first <= ack.sequence) {
    if (heartbeats_.front().first == ack.sequence) {
      answered_at_ = std::max(answered_at_, heartbeats_.front().second);
    }
    heartbeats_.pop_front();
  }
  start_committed();
}

void Agent::State::said(const Envelope& /*envelope*/, const Stale& stale) {
  say(Severity::kInfo, "the server holds our " + stale.what + " for stale; it is at generation " +
                           std::to_string(stale.known.generation));
}

// After a broken stream nobody knows what the server has read: everything that it must know of
// the current generation is said again. Reports carry their rank; saying one twice is harmless.
void Agent::State::report_again() {
  if (assignment_.generation == kNoGeneration) return;
  if (all_spawned_) announce_started();
  std::vector<Worker*> ended;
  for (Worker& worker : workers_) {
    if (worker.ended()) ended.push_back(&worker);
  }
  std::sort(ended.begin(), ended.end(),
            [](const Worker* a, const Worker* b) { return a->report.order < b->report.order; });
  for (Worker* worker : ended)
    report_exit(*worker);
  if (confirmed_) send(assignment_.generation, StopConfirmed{});
  for (const ChaosFired& fault : faults_unsent_)
    send(assignment_.generation, fault);
  faults_unsent_.clear();
}

// The server speaks for another run of this job: what runs here belongs to nobody.
void Agent::State::forget_run() {
  say(Severity::kWarning, "run " + run_ + " is not the server's any more; its workers are killed");
  kill_workers();
  stopping_ = true;
  assignment_ = Assignment{};
  confirmations_owed_.clear();
  confirmed_ = false;
  all_spawned_ = false;
  running_told_.reset();
  restarts_used_ = 0;
  prepared_.reset();
  release_port();
}

// ---------------------------------------------------------------- deadlines

// Shorter than two heartbeats a lease could end between two answers that both come in time.
Duration Agent::State::lease() const {
  return std::max(policy_.server_grace, 2 * policy_.heartbeat);
}

// A server that said goodbye decides nothing any more: what it granted last stands.
std::optional<Instant> Agent::State::lease_end() const {
  if (!ever_accepted_ || lease_over_ || server_left_) return std::nullopt;
  return answered_at_ + lease();
}

// When the current state of the link has lasted too long.
std::optional<Instant> Agent::State::link_patience_end() const {
  switch (link_.state) {
    case Link::State::kClosed: return std::nullopt;
    case Link::State::kOpening: return link_.since + kOpenLimit;
    case Link::State::kUp: break;
  }
  if (!link_.accepted) return link_.since + kAnswerLimit;
  return link_.heard_at + std::max(policy_.node_timeout, 3 * policy_.heartbeat);
}

std::optional<Instant> Agent::State::link_deadline() const {
  std::optional<Instant> next = earlier(link_patience_end(), lease_end());
  if (!ever_accepted_ && !end_) next = earlier(next, started_at_ + policy_.join_timeout);
  if (link_.usable()) next = earlier(next, heartbeat_at_);
  return next;
}

void Agent::State::check_link_deadlines() {
  if (!started_) return;
  if (!ever_accepted_ && !end_ && now_ >= started_at_ + policy_.join_timeout) {
    LinkHistory history = link_.history;
    history.up = link_.state == Link::State::kUp;
    end_with({kExitJoinTimeout, ExitClass::kJoinTimeout, std::nullopt,
              describe(history) + "; gave up after " + whole_seconds(policy_.join_timeout)});
    return;
  }
  if (const auto end = lease_end(); end && now_ >= *end) {
    lease_over_ = true;
    kill_workers();
    std::string text = "no word from the server for " + whole_seconds(now_ - answered_at_);
    if (!link_.history.reason.empty()) text += " (" + link_.history.reason + ")";
    end_with({kExitServerLost, ExitClass::kServerLost, std::nullopt, std::move(text)});
    return;
  }
  if (const auto end = link_patience_end(); end && now_ >= *end) {
    if (link_.state == Link::State::kOpening) {
      drop_link("no connection within " + whole_seconds(kOpenLimit));
    } else if (!link_.accepted) {
      drop_link("the Join was not answered within " + whole_seconds(kAnswerLimit));
    } else {
      drop_link("nothing heard for " + whole_seconds(now_ - link_.heard_at));
    }
    return;
  }
  if (link_.usable() && now_ >= heartbeat_at_) send_heartbeat();
}

void Agent::State::send_heartbeat() {
  heartbeat_at_ = now_ + policy_.heartbeat;
  heartbeats_.emplace_back(++heartbeat_sequence_, now_);
  if (heartbeats_.size() > kHeartbeatsKept) heartbeats_.pop_front();
  send(assignment_.generation, Heartbeat{heartbeat_sequence_, progress_now(), suspended_});
}

}  // namespace muster::agent
