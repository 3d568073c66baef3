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
using boost::system::error_code;

constexpr Duration kLookEvery = 2ms;
// What a kill-agent leaves the report of itself to get away.
constexpr Duration kLastWords = 20ms;

struct Armed {
  ArmedFault armed;
  std::optional<std::uint32_t> local_rank;  // nullopt: the agent's own
  bool in_word = false;
  bool fired = false;
};

}  // namespace

FaultWord choose_fault_word(const std::vector<ArmedFault>& faults) {
  const Fault* chosen = nullptr;
  for (const ArmedFault& armed : faults) {
    const Fault& fault = armed.fault;
    if (!fault.when.step || *fault.when.step > progress::kWordStepMask) continue;
    if (fault.action == FaultAction::kKillAgent) continue;
    if (chosen == nullptr || *fault.when.step < *chosen->when.step) chosen = &fault;
  }
  if (chosen == nullptr) return {};
  const bool kill = chosen->action == FaultAction::kKill;
  const auto action = kill ? progress::WordAction::kKill : progress::WordAction::kStop;
  return {progress::fault_word(action, *chosen->when.step),
          static_cast<std::uint64_t>(kill ? chosen->signal : SIGSTOP), chosen->index};
}

struct FaultInjector::State : std::enable_shared_from_this<FaultInjector::State> {
  State(boost::asio::io_context& context, FaultHooks given)
      : io(context), hooks(std::move(given)), look_timer(context) {}

  // `act` after `delay`, unless the generation's faults are disarmed before.
  void later(Duration delay, std::function<void()> act) {
    timers.emplace_back(io);
    steady_timer& timer = timers.back();
    timer.expires_after(delay);
    timer.async_wait([self = weak_from_this(), life = this->life,
                      act = std::move(act)](const error_code& error) {
      const auto state = self.lock();
      if (!error && state && state->life == life) act();
    });
  }

  void fire(Armed& fault) {
    fault.fired = true;
    const Fault& what = fault.armed.fault;
    if (what.action == FaultAction::kKillAgent) {
      hooks.fired(what.index, fault.armed.rank);
      // Not bound to the generation's life: once announced it happens.
      auto timer = std::make_shared<steady_timer>(io);
      timer->expires_after(kLastWords);
      timer->async_wait([timer, kill = hooks.kill_agent](const error_code&) { kill(); });
      return;
    }
    const std::uint32_t local_rank = *fault.local_rank;
    const int signal = what.action == FaultAction::kStop ? SIGSTOP : what.signal;
    if (!hooks.signal(local_rank, signal)) return;
    took_place(fault);
  }

  // The fault has hit its worker, from here or by the worker's own hand.
  void took_place(Armed& fault) {
    fault.fired = true;
    const Fault& what = fault.armed.fault;
    if (what.action == FaultAction::kStop && what.stop_for) {
      later(*what.stop_for, [this, local_rank = *fault.local_rank] {
        static_cast<void>(hooks.signal(local_rank, SIGCONT));
      });
    }
    hooks.fired(what.index, fault.armed.rank);
  }

  // One look at the steps that `fault` waits for. True: it fires now, by whoever does it.
  void look_at(Armed& fault) {
    const std::uint64_t due = *fault.armed.fault.when.step;
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
    return !fault.fired && fault.armed.fault.when.step.has_value();
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
