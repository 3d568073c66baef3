// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/fault_injector.h"

#include <algorithm>
#include <csignal>
#include <list>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/base/check.h"
#include "proto/base/progress_layout.h"
#include "proto/base/time.h"

namespace muster::agent {

namespace {

using boost::asio::steady_timer;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr Duration kLookEvery = 2ms;
// What a kill-agent leaves the report of itself to get away.
constexpr Duration kLastWords = 20ms;

// A slowed worker runs a part of this and is stopped for the rest.
constexpr Duration kSlowPeriod = 100ms;

FaultWord word_of(const Fault& fault, std::uint64_t step) {
  using progress::WordAction;
  switch (fault.action) {
    case FaultAction::kExit:
      return {progress::fault_word(WordAction::kExit, step), fault.exit_code, {}};
    case FaultAction::kStop: return {progress::fault_word(WordAction::kStop, step), SIGSTOP, {}};
    default:
      return {progress::fault_word(WordAction::kKill, step),
              static_cast<std::uint64_t>(fault.signal),
              {}};
  }
}

struct Armed {
  ArmedFault armed;
  std::optional<std::uint32_t> local_rank;  // nullopt: the agent's own
  bool in_word = false;
  bool fired = false;
  bool asked = false;  // its word was written while the worker ran
};

}  // namespace

FaultWord choose_fault_word(const std::vector<ArmedFault>& faults) {
  const Fault* chosen = nullptr;
  for (const ArmedFault& armed : faults) {
    const Fault& fault = armed.fault;
    if (!fault.when.step || *fault.when.step > progress::kWordStepMask) continue;
    const bool is_own_act = fault.action == FaultAction::kKill ||
                            fault.action == FaultAction::kStop ||
                            fault.action == FaultAction::kExit;
    if (!is_own_act) continue;
    if (chosen == nullptr || *fault.when.step < *chosen->when.step) chosen = &fault;
  }
  if (chosen == nullptr) return {};
  FaultWord word = word_of(*chosen, *chosen->when.step);
  word.fault_index = chosen->index;
  return word;
}

struct FaultInjector::State : std::enable_shared_from_this<FaultInjector::State> {
  State(boost::asio::io_context& context, FaultHooks given)
      : io(context), hooks(std::move(given)), look_timer(context) {}

  // `act` after `delay`, unless the generation's faults are disarmed before.
  void later(Duration delay, std::function<void()> act) {
    const auto place = timers.emplace(timers.end(), io);
    place->expires_after(delay);
    place->async_wait([self = weak_from_this(), life = this->life, place,
                       act = std::move(act)](const error_code& error) {
      const auto state = self.lock();
      if (error || !state || state->life != life) return;
      state->timers.erase(place);
      act();
    });
  }

  void fire(Armed& fault) {
    const Fault& what = fault.armed.fault;
    if (hits_agent(what.action)) return fire_on_agent(fault);
    const std::uint32_t local_rank = *fault.local_rank;
    if (what.action == FaultAction::kExit) return ask_to_exit(fault);
    fault.fired = true;
    if (what.action == FaultAction::kSlow) {
      const auto until = what.lasts ? std::optional(Clock::now() + *what.lasts) : std::nullopt;
      if (!slow_down(local_rank, what.factor, until)) return;
    } else if (!hooks.signal(local_rank,
                             what.action == FaultAction::kStop ? SIGSTOP : what.signal)) {
      return;
    }
    took_place(fault);
  }

  void fire_on_agent(Armed& fault) {
    fault.fired = true;
    const Fault& what = fault.armed.fault;
    hooks.fired(what.index, fault.armed.rank);
    // Not bound to the generation's life: once announced it happens. The report goes first.
    auto timer = std::make_shared<steady_timer>(io);
    timer->expires_after(kLastWords);
    timer->async_wait([timer, what, hooks = hooks](const error_code&) {
      switch (what.action) {
        case FaultAction::kKillAgent: return hooks.kill_agent();
        case FaultAction::kPreempt: return hooks.preempt();
        default: return hooks.disturb_link(what);
      }
    });
  }

  // Fires when the worker has taken the word, which it does at its next report.
  void ask_to_exit(Armed& fault) {
    if (fault.asked) return;
    fault.asked = true;
    fault.in_word = true;
    for (Armed& other : faults) {
      if (&other != &fault && other.local_rank == fault.local_rank) other.in_word = false;
    }
    const FaultWord word = word_of(fault.armed.fault, fault.armed.fault.when.step.value_or(0));
    hooks.ask(*fault.local_rank, word.word, word.argument);
    if (!looking) look_again();
  }

  // Runs and stands by turns. False: the worker has ended.
  bool slow_down(std::uint32_t local_rank, double factor, std::optional<Clock::time_point> until) {
    const bool is_over = until && Clock::now() >= *until;
    if (is_over || factor <= 1) return true;
    if (!hooks.signal(local_rank, SIGSTOP)) return false;
    const auto runs = std::chrono::duration_cast<Duration>(kSlowPeriod / factor);
    later(kSlowPeriod - runs, [this, local_rank, factor, until, runs] {
      if (!hooks.signal(local_rank, SIGCONT)) return;
      later(runs, [this, local_rank, factor, until] {
        static_cast<void>(slow_down(local_rank, factor, until));
      });
    });
    return true;
  }

  // The fault has hit its worker, from here or by the worker's own hand.
  void took_place(Armed& fault) {
    fault.fired = true;
    const Fault& what = fault.armed.fault;
    if (what.action == FaultAction::kStop && what.lasts) {
      later(*what.lasts, [this, local_rank = *fault.local_rank] {
        static_cast<void>(hooks.signal(local_rank, SIGCONT));
      });
    }
    hooks.fired(what.index, fault.armed.rank);
  }

  // One look at the step that `fault` waits for, or at the word that was given.
  void look_at(Armed& fault) {
    const std::uint64_t due = fault.armed.fault.when.step.value_or(0);
    if (!fault.local_rank) {  // the agent's own: any worker's step counts
      for (const std::uint32_t local_rank : workers) {
        const auto reading = hooks.progress(local_rank);
        if (reading && reading->step >= due) return fire(fault);
      }
      return;
    }
    const auto reading = hooks.progress(*fault.local_rank);
    if (!reading) return;
    if (fault.in_word && reading->word_taken) return took_place(fault);
    if (reading->step >= due) fire(fault);
  }

  bool waits_for_step(const Armed& fault) const {
    return !fault.fired && (fault.asked || fault.armed.fault.when.step.has_value());
  }

  void look() {
    for (Armed& fault : faults) {
      if (waits_for_step(fault)) look_at(fault);
    }
    look_again();
  }

  void look_again() {
    looking = std::any_of(faults.begin(), faults.end(),
                          [this](const Armed& fault) { return waits_for_step(fault); });
    if (!looking) return;
    look_timer.expires_after(kLookEvery);
    look_timer.async_wait([self = weak_from_this(), life = this->life](const error_code& error) {
      const auto state = self.lock();
      if (!error && state && state->life == life) state->look();
    });
  }

  void forget() {
    ++life;
    faults.clear();
    workers.clear();
    timers.clear();
    look_timer.cancel();
    looking = false;
    generation = kNoGeneration;
  }

  boost::asio::io_context& io;
  FaultHooks hooks;
  steady_timer look_timer;
  std::list<steady_timer> timers;
  std::list<Armed> faults;  // stable addresses: timers refer to them
  std::vector<std::uint32_t> workers;
  Generation generation = kNoGeneration;
  std::uint64_t life = 0;  // rises when everything is forgotten; old handlers see it
  bool looking = false;
};

FaultInjector::FaultInjector(boost::asio::io_context& io, FaultHooks hooks)
    : state_(std::make_shared<State>(io, std::move(hooks))) {}

FaultInjector::~FaultInjector() {
  state_->forget();
}

void FaultInjector::arm(Generation generation, std::vector<ArmedFault> agent_faults) {
  state_->forget();
  state_->generation = generation;
  for (ArmedFault& fault : agent_faults) {
    state_->faults.push_back({std::move(fault), std::nullopt, false, false});
  }
}

void FaultInjector::arm_worker(std::uint32_t local_rank, std::vector<ArmedFault> faults,
                               std::optional<std::uint32_t> in_word) {
  state_->workers.push_back(local_rank);
  for (ArmedFault& fault : faults) {
    const bool word = in_word == fault.fault.index;
    state_->faults.push_back({std::move(fault), local_rank, word, false});
  }
  if (!state_->looking) state_->look_again();
}

void FaultInjector::start_clock(Generation generation, Duration elapsed) {
  if (generation != state_->generation) return;
  for (Armed& fault : state_->faults) {
    if (fault.fired || !fault.armed.fault.when.after) continue;
    const Duration rest = std::max(*fault.armed.fault.when.after - elapsed, Duration{0});
    state_->later(rest, [state = state_.get(), fault = &fault] {
      if (!fault->fired) state->fire(*fault);
    });
  }
}

void FaultInjector::worker_ended(std::uint32_t local_rank) {
  for (Armed& fault : state_->faults) {
    if (fault.local_rank != local_rank || fault.fired) continue;
    if (fault.in_word) {
      const auto reading = state_->hooks.progress(local_rank);
      if (reading && reading->word_taken) {
        state_->hooks.fired(fault.armed.fault.index, fault.armed.rank);
      }
    }
    fault.fired = true;  // or never will be
  }
}

void FaultInjector::disarm() {
  state_->forget();
}

}  // namespace muster::agent
