// SPDX-License-Identifier: Apache-2.0
//
// The ends. Each sets end_ and orders what must stop; finish_if_over() alone returns Finish,
// when nothing runs any more. The first end stands, with three exceptions: the job's own outcome
// replaces an end that only guessed at it (server leaving) or that it beat (a success decided
// before our Leave was read), an unkillable worker and a lost guardian replace all but success.
#include <algorithm>

#include "agent/core/exit_status.h"
#include "agent/core/machine.h"
#include "proto/base/failure.h"

namespace muster::agent {
namespace {

constexpr int kExitInternal = 70;
constexpr int kExitServerLost = 76;
constexpr int kExitUnfit = 77;
constexpr int kExitStopped = 143;  // by an operator

// contracts §2: what is left of --stop-budget for the agent itself once its workers are gone.
constexpr Duration kBudgetReserve = 3s;
// What SIGKILL does not end at once, it hardly ever ends: a process that the kernel does not let go
// of. Of the budget's rest, this much is for saying so and for clearing up.
constexpr Duration kKillPatience = 5s;
constexpr Duration kLeastKillPatience = 1s;
constexpr Duration kUnfitReserve = 2s;
static_assert(kLeastKillPatience + kUnfitReserve <= kBudgetReserve);
// A terminal may deliver one key press twice (to the group and through the guardian).
constexpr Duration kSameSignalGap = 100ms;
constexpr Duration kShortGrace = 2s;
// How long the last member that leaves waits for the outcome that its leaving causes: the more
// signals came, the shorter.
constexpr Duration outcome_wait(std::uint32_t signals) {
  return signals <= 1 ? 500ms : signals == 2 ? 250ms : 100ms;
}
// How long a node whose workers are gone tries to tell a server that does not answer that it
// leaves: one that starts again is back by then. Untold, the others take it for lost. TERM is how
// schedulers stop a node, and they give it time; behind the other signals somebody waits.
constexpr Duration farewell_limit(std::optional<int> signal) {
  return !signal || *signal == kSigTerm ? 10s : 500ms;
}
constexpr Duration kFarewellLineAfter = 1s;
// Workers may have used the budget up; an answer that is there is heard all the same.
constexpr Duration kLeastFarewell = 500ms;
static_assert(kLeastFarewell + kUnfitReserve <= kBudgetReserve);

}  // namespace

void Agent::State::end_with(End end) {
  if (!end_) end_ = std::move(end);
}

// ---------------------------------------------------------------- signals to the agent

void Agent::State::on(const SignalReceived& received) {
  if (suspends_or_resumes(received.signal)) return;
  const auto& forwarded = config_.forward_signals;
  if (std::find(forwarded.begin(), forwarded.end(), received.signal) != forwarded.end()) {
    for (const Worker& worker : workers_) {
      if (!worker.spawned || worker.ended()) continue;
      act(SignalWorker{.local_rank = worker.local_rank,
                       .signal = received.signal,
                       .scope = config_.stop_scope,
                       .stops = false});
    }
    return;
  }
  if (signal_) return repeated_signal();
  signal_ = received.signal;
  signaled_at_ = now_;
  signal_counted_at_ = now_;
  signals_counted_ = 1;
  note_same_signal();
  leave(received.signal, "stopped by " + signal_name(received.signal));
  end_with({128 + received.signal, ExitClass::kSignal, std::nullopt,
            "stopped by " + signal_name(received.signal)});
  const Duration budget = std::max(config_.stop_budget - kBudgetReserve, Duration{0});
  stop_for_good(config_.stop_signal.value_or(received.signal),
                std::min(policy_.stop_grace, budget));
}

// Where it was sent to all of the node, a worker may have been first.
void Agent::State::note_same_signal() {
  for (Worker& worker : workers_) {
    if (!worker.ended() || now_ - *worker.ended_at > kSameSignalWindow) continue;
    const bool by_it = ending_signal(worker.report.status) == *signal_;
    if (by_it && !worker.report.torn_down) worker.report.agent_signaled = true;
  }
}

void Agent::State::repeated_signal() {
  if (now_ - signal_counted_at_ <= kSameSignalGap) return;
  signal_counted_at_ = now_;
  ++signals_counted_;
  if (signals_counted_ > 2) return kill_workers();
  for (Worker& worker : workers_) {
    if (worker.ladder.begun()) worker.ladder.hasten(now_, now_ + kShortGrace);
  }
}

// The stop file first, then the signal at once: the node goes down, half a grace is not ours.
void Agent::State::stop_for_good(int signal, Duration grace) {
  stopping_ = true;
  for (const Worker& worker : workers_) {
    if (worker.ended() || worker.given_up || worker.ladder.signaled()) continue;
    act(WriteStopFile{worker.local_rank});
  }
  stop_workers(signal, grace);
}

// Between SIGKILL and giving up; everything after it waits for nothing any more.
Duration Agent::State::kill_patience() const {
  if (!signal_) return kKillPatience;
  const Duration left = signaled_at_ + config_.stop_budget - kUnfitReserve - now_;
  return std::clamp(left, kLeastKillPatience, kKillPatience);
}

void Agent::State::leave(int signal, std::string reason) {
  if (!leave_) {
    leave_ = Leave{signal, std::move(reason), Duration{0}};
    leave_at_ = now_;
    for (Worker& worker : workers_)
      worker.parting = !worker.ended() && !worker.ladder.begun();
  }
  send_leave();
}

void Agent::State::send_leave() {
  if (!leave_ || link_.left || !link_.usable()) return;
  link_.left = true;
  leave_->age = now_ - leave_at_;
  send(assignment_.generation, *leave_);
}

void Agent::State::on(const GuardianLost& lost) {
  leave(0, lost.reason);
  kill_workers();
  const bool succeeded = outcome_ && outcome_->kind == OutcomeKind::kSucceeded;
  if (!succeeded) end_ = End{kExitInternal, ExitClass::kInternal, std::nullopt, lost.reason};
}

// ---------------------------------------------------------------- ends that the server tells

// Of a job that went on without this node a success says nothing about it. On the stream that was
// up when the signal came it was decided before the Leave was read.
bool Agent::State::was_before_the_signal(Generation generation) const {
  if (!new_stream_since_signal_) return true;
  return generation == assignment_.generation && !workers_.empty() &&
         std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.done(); });
}

void Agent::State::said(const Envelope& envelope, const OutcomeNotice& notice) {
  send(assignment_.generation, OutcomeSeen{});
  if (outcome_) return;
  outcome_ = notice.outcome;
  const bool succeeded = outcome_->kind == OutcomeKind::kSucceeded;
  if (!job_finished_emitted_) {
    job_finished_emitted_ = true;
    JobEvent event;
    event.body = event::JobFinished{*outcome_};
    emit(std::move(event));
  }
  const bool replaces = !end_ || end_->exit_class == ExitClass::kServerLost ||
                        (end_->exit_class == ExitClass::kSignal && succeeded &&
                         was_before_the_signal(envelope.generation));
  if (replaces) {
    end_ = End{exit_code_of(*outcome_, config_.exit_code), outcome_->exit_class, outcome_, ""};
  } else if (end_->exit_class == ExitClass::kSignal) {
    end_->outcome = outcome_;
  }
  // After a success only what workers left behind can still run; it has its own grace.
  if (!succeeded || any_leader_alive()) {
    stopping_ = true;
    stop_workers(wanted_signal(), policy_.stop_grace);
  }
}

void Agent::State::said(const Envelope& /*envelope*/, const Evicted& evicted) {
  sent_away_ = true;
  kill_workers();
  if (evicted.drained) {
    end_with({kExitStopped, ExitClass::kStopped, std::nullopt,
              "this node leaves the job: " + evicted.reason});
    return;
  }
  end_with({kExitUnfit, ExitClass::kUnfit, std::nullopt,
            "this node was taken out of the job: " + evicted.reason});
}

void Agent::State::said(const Envelope& /*envelope*/, const ServerLeaving& leaving) {
  server_left_ = true;
  if (end_) return;
  end_with({kExitServerLost, ExitClass::kServerLost, std::nullopt,
            "the server is leaving: " + leaving.reason});
  stop_for_good(wanted_signal(), policy_.stop_grace);
}

// ---------------------------------------------------------------- the one Finish

// As far as this agent was told: the others of its generation have left before it, or are lost.
bool Agent::State::is_last_member() const {
  if (assignment_.generation == kNoGeneration) {
    return config_.spec.max_nodes == 1 || (waiting_ && waiting_->joined.size() == 1);
  }
  return std::all_of(assignment_.members.begin(), assignment_.members.end(),
                     [this](const MemberRanks& member) {
                       return member.node == config_.node.name || left_.contains(member.node);
                     });
}

std::optional<Instant> Agent::State::outcome_wait_end() const {
  // One that is unfit ends with its own code, and has not confirmed its stop.
  const bool unfit = end_ && end_->exit_class == ExitClass::kUnfit;
  const bool waits = idle_since_ && signal_ && !unfit && link_.left && !unheard_ && !outcome_ &&
                     link_.usable() && is_last_member();
  if (!waits) return std::nullopt;
  return *idle_since_ + outcome_wait(signals_counted_);
}

// What the others of the job wait for: that this node leaves, and that nothing of theirs runs here
// any more. The heartbeat asks whether it was heard.
void Agent::State::say_farewell() {
  if (!leave_ || link_.farewell != 0 || !link_.left || !link_.usable()) return;
  const bool owed = assignment_.generation != kNoGeneration && !any_alive();
  if (owed && !link_.stop_confirmed) {
    send(assignment_.generation, StopConfirmed{});
  }
  send_heartbeat();
  link_.farewell = heartbeat_sequence_;
}

// Until when the end waits for that answer, or for a stream to ask on; nullopt: it was heard, or
// nobody is there to hear it. Who signals twice does not want to wait for it.
std::optional<Instant> Agent::State::farewell_end() const {
  const bool own_end =
      end_ && (end_->exit_class == ExitClass::kSignal || end_->exit_class == ExitClass::kUnfit);
  const bool unheard = leave_ && own_end && ever_accepted_ && !farewell_heard_;
  if (!unheard || sent_away_ || server_left_ || lease_over_ || outcome_ || signals_counted_ > 1) {
    return std::nullopt;
  }
  const Duration budget = std::max(config_.stop_budget - kBudgetReserve, Duration{0});
  const Instant told = signal_ ? std::min(signaled_at_, leave_at_) : leave_at_;
  const Instant least = farewell_since_.value_or(now_) + kLeastFarewell;
  return std::min(farewell_since_.value_or(now_) + farewell_limit(signal_),
                  std::max(told + budget, least));
}

// When the wait for it is worth a line; nullopt: that was said, or there is no wait.
std::optional<Instant> Agent::State::farewell_line_at() const {
  if (!farewell_since_ || farewell_line_said_ || !farewell_end()) return std::nullopt;
  return *farewell_since_ + kFarewellLineAfter;
}

bool Agent::State::awaits_farewell() {
  say_farewell();
  const std::optional<Instant> end = farewell_end();
  unheard_ = end && now_ >= *end;
  if (!end || unheard_) return false;
  if (!farewell_since_) farewell_since_ = now_;
  if (const auto line = farewell_line_at(); line && now_ >= *line) {
    farewell_line_said_ = true;
    say(Severity::kWarning, "the server does not answer; trying for " + whole_seconds(*end - now_) +
                                " to tell it that this node leaves (a second signal ends it)");
  }
  return true;
}

void Agent::State::finish_if_over() {
  if (!end_ || any_not_over()) return;
  release_port();
  if (awaits_farewell()) return idle_since_.reset();
  if (!idle_since_) idle_since_ = now_;
  if (const auto end = outcome_wait_end(); end && now_ < *end) return;
  if (suspended_) act(ResumeGuardian{});
  if (link_.state != Link::State::kClosed) act(Disconnect{});
  link_.state = Link::State::kClosed;
  act(Finish{end_->exit_code, end_->exit_class, end_->outcome, end_->text});
  finished_ = true;
}

}  // namespace muster::agent
