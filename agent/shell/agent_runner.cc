// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/agent_runner.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

#include "agent/core/trace.h"
#include "agent/shell/agent_runner_state.h"
#include "agent/shell/io_loop.h"
#include "proto/base/check.h"

namespace muster::agent {

namespace {

using boost::asio::steady_timer;
using boost::system::error_code;

}  // namespace

// ------------------------------------------------------------------ the world becomes events

void AgentRunner::State::watch_world() {
  if (!options.signals.empty()) {
    signal_watch = std::make_unique<SignalWatch>(io, options.signals, [this](const SignalInfo& in) {
      if (options.guard_page != nullptr && stops(in.signal)) ++options.guard_page->heard;
      signal_arrived(in.signal);
    });
  }
  if (options.guardian) {
    guardian_watch = std::make_unique<GuardianWatch>(
        io, *options.guardian, options.guard_page,
        [this](std::string reason) { post(GuardianLost{std::move(reason)}); });
  }
}

// All that are taken stop the job, but for these.
bool AgentRunner::State::stops(int signal) const {
  if (signal == SIGTSTP || signal == SIGCONT || signal == SIGWINCH) return false;
  return std::find(passed_on.begin(), passed_on.end(), signal) == passed_on.end();
}

void AgentRunner::State::signal_arrived(int number) {
  told_to_stop |= stops(number);
  if (number == SIGWINCH) resize_terminals();
  post(SignalReceived{number});
}

void AgentRunner::State::resize_terminals() {
  for (const std::uint32_t local_rank : console.resize_terminals())
    workers->signal(SignalWorker{.local_rank = local_rank,
                                 .signal = SIGWINCH,
                                 .scope = SignalScope::kGroup,
                                 .stops = false});
}

// Carrying out an action may make an event at once (a port is held): it waits its turn, so that
// all actions of one step are done before the next step.
void AgentRunner::State::post(Event event) {
  if (finished) return hurry(event);
  inbox.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  while (!inbox.empty() && !finished) {
    const Event next = std::move(inbox.front());
    inbox.pop_front();
    step(next);
  }
  stepping = false;
  arm_deadline();
}

void AgentRunner::State::step(const Event& event) {
  if (!log.debugs()) return carry_out(machine.step(event, IoLoop::now()));
  const Phase before = machine.view().phase;
  log.debug(trace(event));
  std::vector<Action> actions = machine.step(event, IoLoop::now());
  const Phase after = machine.view().phase;
  if (after != before) log.debug(std::string(phase_word(before)) + " -> " + phase_word(after));
  for (const Action& action : actions)
    log.debug(trace(action));
  carry_out(std::move(actions));
}

void AgentRunner::State::carry_out(std::vector<Action> actions) {
  for (Action& action : actions)
    std::visit(*this, action);
}

void AgentRunner::State::arm_deadline() {
  const std::optional<Instant> next = finished ? std::nullopt : machine.next_deadline();
  if (next == armed) return;
  armed = next;
  if (!next) {
    deadline_timer.cancel();
    return;
  }
  deadline_timer.expires_at(steady_timer::time_point(
      std::chrono::duration_cast<steady_timer::duration>(next->since_origin)));
  deadline_timer.async_wait([self = weak_from_this()](const error_code& error) {
    if (error) return;
    const auto state = self.lock();
    if (!state) return;
    // Facts that arrived come before deadlines (a stalled process finds both at once).
    boost::asio::post(state->io, [self] {
      const auto late = self.lock();
      if (!late) return;
      late->after_a_look([self] {
        if (const auto later = self.lock()) later->deadline_passed();
      });
    });
  });
}

void AgentRunner::State::deadline_passed() {
  if (finished) return;
  const Instant now = IoLoop::now();
  armed.reset();
  if (machine.next_deadline() && *machine.next_deadline() <= now) {
    ProgressSampled sampled{workers->sample(now), console.heard()};
    if (!sampled.progress.empty() || sampled.heard != heard_told) {
      heard_told = sampled.heard;
      post(std::move(sampled));
    }
    return post(Tick{});
  }
  arm_deadline();
}

void AgentRunner::State::open_link() {
  ++link_life;
  ServerLink::Callbacks callbacks;
  callbacks.up = [self = weak_from_this()] {
    const auto state = self.lock();
    if (!state) return;
    state->link_is_up = true;
    state->heard(LinkUp{});
  };
  callbacks.said = [self = weak_from_this()](ServerMessage message) {
    if (const auto state = self.lock()) state->link_said(std::move(message));
  };
  callbacks.down = [self = weak_from_this()](std::string reason, bool speaks_muster) {
    const auto state = self.lock();
    if (!state) return;
    state->link_is_up = false;
    if (state->options.store.link_down) state->options.store.link_down();
    state->heard(LinkDown{std::move(reason), speaks_muster});
  };
  callbacks.store_said = [self = weak_from_this()](const StoreReply& reply) {
    const auto state = self.lock();
    if (state && state->options.store.store_said) state->options.store.store_said(reply);
  };
  link->open(std::move(callbacks));
}

void AgentRunner::State::link_said(ServerMessage message) {
  if (std::holds_alternative<JoinAccepted>(message.body) && options.store.link_up) {
    options.store.link_up(link.get());
  }
  heard(ServerSaid{std::move(message)});
}

// A stop order may be there because ranks elsewhere failed over a worker of ours that ended before
// it: that end must be read first, or it would be taken for what the order did.
void AgentRunner::State::heard(Event event) {
  after_a_look([self = weak_from_this(), life = link_life, event = std::move(event)] {
    const auto state = self.lock();
    if (state && state->link_life == life) state->post(event);
  });
}

// After whatever the loop's next look at descriptors finds; those who call this stay in order. Two
// turns, since what is posted comes before what that look finds.
void AgentRunner::State::after_a_look(std::function<void()> then) {
  boost::asio::post(io, [this, self = weak_from_this(), then = std::move(then)] {
    if (const auto state = self.lock()) boost::asio::post(io, then);
  });
}

// ------------------------------------------------------------------ the class

AgentRunner::AgentRunner(boost::asio::io_context& io, RunnerOptions options, AgentConfig config,
                         std::unique_ptr<ServerLink> link)
    : state_(std::make_shared<State>(io, std::move(options), std::move(config), std::move(link))) {}

AgentRunner::~AgentRunner() {
  state_->finished = true;
  state_->deadline_timer.cancel();
  state_->connect_timer.cancel();
  state_->workers.reset();
}

void AgentRunner::run(std::function<void(const RunResult&)> done) {
  MUSTER_CHECK(!state_->done);
  state_->done = std::move(done);
  state_->watch_world();
  state_->post(Started{});
}

void AgentRunner::signal(int number) {
  state_->signal_arrived(number);
}

void AgentRunner::resize_terminals() {
  state_->resize_terminals();
}

AgentView AgentRunner::view() const {
  return state_->machine.view();
}

}  // namespace muster::agent
