// SPDX-License-Identifier: Apache-2.0
#include "agent/core/machine.h"

#include <utility>

#include "proto/base/check.h"

namespace muster::agent {
namespace {

constexpr Duration kWaitingLineEvery = 10s;  // contracts §2: a waiting node says what it waits for

}  // namespace

Agent::Agent(AgentConfig config) : state_(std::make_unique<State>(std::move(config))) {}
Agent::~Agent() = default;
Agent::Agent(Agent&&) noexcept = default;
Agent& Agent::operator=(Agent&&) noexcept = default;

std::vector<Action> Agent::step(const Event& event, Instant now) {
  return state_->step(event, now);
}
std::optional<Instant> Agent::next_deadline() const {
  return state_->next_deadline();
}
AgentView Agent::view() const {
  return state_->view();
}

Agent::State::State(AgentConfig from)
    : config_(std::move(from)), policy_(config_.spec.policy), rng_(config_.seed) {
  link_.history.endpoint = config_.endpoint;
}

std::vector<Action> Agent::State::step(const Event& event, Instant now) {
  MUSTER_CHECK(now >= now_);
  now_ = now;
  if (finished_) return {};
  std::visit([this](const auto& fact) { on(fact); }, event);
  settle();
  return std::exchange(out_, {});
}

void Agent::State::on(const Tick& /*tick*/) {
  check_link_deadlines();
  check_device_wait();
  check_hangs();
  if (waiting_since_ && now_ >= waiting_said_at_ + kWaitingLineEvery) say_waiting();
}

void Agent::State::settle() {
  drive_ladders();
  confirm_stops();
  if (!waits()) {
    waiting_since_.reset();
  } else if (!waiting_since_) {
    waiting_since_ = now_;
    waiting_said_at_ = now_;
  }
  finish_if_over();
}

void Agent::State::send(Generation generation, AgentBody body) {
  const bool is_join = std::holds_alternative<Join>(body);
  // What is dropped here is reported again, or asked for again, when a Join is accepted.
  if (link_.state != Link::State::kUp || (!link_.accepted && !is_join)) return;
  AgentMessage message;
  message.envelope.job = config_.spec.job;
  message.envelope.run = run_;
  message.envelope.generation = generation;
  message.envelope.node = config_.node.name;
  message.envelope.incarnation = incarnation_;
  message.envelope.epoch = epoch_;
  message.body = std::move(body);
  act(Send{std::move(message)});
}

void Agent::State::emit(JobEvent event) {
  act(Emit{run_, std::move(event)});
}

bool Agent::State::waits() const {
  if (!started_ || end_) return false;
  return !link_.usable() || workers_.empty() || stopping_;
}

void Agent::State::say_waiting() {
  waiting_said_at_ = now_;
  std::string text;
  if (link_.usable()) {
    text = "waiting for the server to form a generation";
    if (waiting_) {
      // The server tells it once and leaves the counting to us.
      Waiting aged = *waiting_;
      aged.remaining -= now_ - waiting_told_at_;
      text = describe(aged);
    }
  } else {
    LinkHistory history = link_.history;
    history.up = link_.state == Link::State::kUp;
    text = describe(history);
    const Instant end =
        ever_accepted_ ? lease_end().value_or(now_) : started_at_ + policy_.join_timeout;
    text += ever_accepted_ ? "; workers go on for " : "; giving up in ";
    text += whole_seconds(end - now_);
  }
  say(Severity::kWarning, text + " (waited " + whole_seconds(now_ - *waiting_since_) + ")");
}

std::optional<Instant> Agent::State::next_deadline() const {
  if (!started_ || finished_) return std::nullopt;
  std::optional<Instant> next = link_deadline();
  if (waiting_since_) next = earlier(next, waiting_said_at_ + kWaitingLineEvery);
  for (const Worker& worker : workers_) {
    next = earlier(next, worker.ladder.next_deadline());
    next = earlier(next, linger_deadline(worker));
  }
  if (device_wait_) next = earlier(next, device_wait_->until);
  next = earlier(next, hang_deadline());
  if (farewell_since_ && !idle_since_) {
    next = earlier(next, farewell_end());
    next = earlier(next, farewell_line_at());
  }
  if (idle_since_) next = earlier(next, outcome_wait_end());
  return next;
}

AgentView Agent::State::view() const {
  AgentView view;
  view.connected = link_.usable();
  view.run = run_;
  view.generation = assignment_.generation;
  view.restarts_used = restarts_used_;
  for (const Worker& worker : workers_) {
    if (!worker.gone) view.live_local_ranks.push_back(worker.local_rank);
  }
  if (finished_) {
    view.phase = Phase::kFinished;
  } else if (end_ || leave_) {
    view.phase = Phase::kLeaving;
  } else if (any_alive()) {
    view.phase = stopping_ ? Phase::kStopping : all_spawned_ ? Phase::kRunning : Phase::kStarting;
  } else if (prepared_) {
    view.phase = Phase::kPrepared;
  } else if (!ever_accepted_) {
    view.phase = Phase::kConnecting;
  } else {
    view.phase = assignment_.generation == kNoGeneration ? Phase::kWaiting : Phase::kIdle;
  }
  return view;
}

}  // namespace muster::agent
