// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/fault_injector.h"

#include <csignal>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "proto/base/progress_layout.h"

namespace muster::agent {
namespace {

ArmedFault at_step(std::uint32_t index, FaultAction action, std::uint64_t step) {
  ArmedFault armed;
  armed.fault.index = index;
  armed.fault.action = action;
  armed.fault.when.step = step;
  if (!hits_agent(action)) armed.rank = 3;
  return armed;
}

ArmedFault after(std::uint32_t index, FaultAction action, Duration delay) {
  ArmedFault armed = at_step(index, action, 0);
  armed.fault.when.step.reset();
  armed.fault.when.after = delay;
  return armed;
}

// The world of an injector, written down.
struct World {
  boost::asio::io_context io{1};
  std::map<std::uint32_t, ProgressFile::Reading> steps;
  std::set<std::uint32_t> dead;
  std::vector<std::string> log;
  std::uint64_t asked = 0;
  FaultInjector injector{io, hooks()};

  FaultHooks hooks() {
    FaultHooks out;
    out.signal = [this](std::uint32_t local_rank, int signal) {
      if (dead.count(local_rank) != 0) return false;
      log.push_back("signal " + std::to_string(local_rank) + " " + std::to_string(signal));
      return true;
    };
    out.progress = [this](std::uint32_t local_rank) -> std::optional<ProgressFile::Reading> {
      const auto found = steps.find(local_rank);
      if (found == steps.end()) return std::nullopt;
      return found->second;
    };
    out.fired = [this](std::uint32_t index, std::optional<std::uint32_t> rank) {
      log.push_back("fired " + std::to_string(index) + " " +
                    (rank ? std::to_string(*rank) : "agent"));
    };
    out.kill_agent = [this] { log.push_back("kill agent"); };
    out.preempt = [this] { log.push_back("preempt"); };
    out.disturb_link = [this](const Fault& fault) {
      log.push_back("disturb " + std::to_string(fault.index));
    };
    out.ask = [this](std::uint32_t local_rank, std::uint64_t word, std::uint64_t argument) {
      asked = word;
      log.push_back("ask " + std::to_string(local_rank) + " " + std::to_string(argument));
    };
    return out;
  }

  // Turns the loop until the log has `count` lines, or for ten seconds.
  void until(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    io.restart();
    while (log.size() < count && std::chrono::steady_clock::now() < end)
      io.run_one_for(10ms);
  }
  // Turns the loop through `looks` more looks at the steps.
  void look(int looks) {
    io.restart();
    for (int i = 0; i < looks; ++i)
      io.run_one_for(10ms);
  }
};

using Log = std::vector<std::string>;

}  // namespace

TEST_CASE("the earliest step fault of a worker goes into its word") {
  CHECK(choose_fault_word({}).word == 0);
  CHECK(choose_fault_word({after(0, FaultAction::kKill, 1s)}).word == 0);
  CHECK(choose_fault_word({at_step(0, FaultAction::kKillAgent, 1)}).word == 0);
  const FaultWord word =
      choose_fault_word({at_step(0, FaultAction::kKill, 9), at_step(1, FaultAction::kStop, 4)});
  CHECK(word.fault_index == 1U);
  CHECK(word.word == progress::fault_word(progress::WordAction::kStop, 4));
  const FaultWord kill = choose_fault_word({at_step(7, FaultAction::kKill, 9)});
  CHECK(kill.word == progress::fault_word(progress::WordAction::kKill, 9));
  CHECK(kill.argument == SIGKILL);
  CHECK(choose_fault_word({at_step(0, FaultAction::kKill, ~std::uint64_t{0})}).word == 0);
}

TEST_CASE("a step fault fires once, at the first step seen at or beyond it") {
  World world;
  world.injector.arm(0, {});
  world.injector.arm_worker(1, {at_step(0, FaultAction::kKill, 5)}, 0U);
  world.steps[1] = {4, std::nullopt, false};
  world.look(5);
  CHECK(world.log.empty());
  world.steps[1].step = 6;  // the word is still there: this worker does not act on it
  world.until(2);
  CHECK(world.log == Log{"signal 1 9", "fired 0 3"});
  world.look(5);
  world.injector.worker_ended(1);
  CHECK(world.log.size() == 2);
}

TEST_CASE("an exit is the worker's own act: it gets a word, and fires when that is taken") {
  ArmedFault exits = after(0, FaultAction::kExit, 1ms);
  exits.fault.exit_code = 7;
  const FaultWord word = [&] {
    ArmedFault stepped = at_step(3, FaultAction::kExit, 9);
    stepped.fault.exit_code = 5;
    return choose_fault_word({stepped});
  }();
  CHECK(word.word == progress::fault_word(progress::WordAction::kExit, 9));
  CHECK(word.argument == 5);
  World world;
  world.injector.arm(0, {});
  world.injector.arm_worker(1, {exits}, std::nullopt);
  world.injector.start_clock(0);
  world.steps[1] = {4, std::nullopt, false};
  world.until(1);
  CHECK(world.log == Log{"ask 1 7"});
  CHECK(world.asked == progress::fault_word(progress::WordAction::kExit, 0));
  world.look(10);
  CHECK(world.log.size() == 1);
  world.steps[1].word_taken = true;
  world.until(2);
  CHECK(world.log == Log{"ask 1 7", "fired 0 3"});
}

TEST_CASE("a slowed worker stands and runs by turns, until it is over") {
  ArmedFault slow = after(0, FaultAction::kSlow, 0ms);
  slow.fault.factor = 10;
  slow.fault.lasts = 150ms;
  World world;
  world.injector.arm(0, {});
  world.injector.arm_worker(1, {slow}, std::nullopt);
  world.injector.start_clock(0);
  world.until(5);
  CHECK(world.log == Log{"signal 1 19", "fired 0 3", "signal 1 18", "signal 1 19", "signal 1 18"});
  world.look(30);
  CHECK(world.log.size() == 5);
}

TEST_CASE("what hits the agent is reported before it happens") {
  World world;
  world.injector.arm(0, {after(0, FaultAction::kPreempt, 1ms)});
  world.injector.start_clock(0);
  world.until(2);
  CHECK(world.log == Log{"fired 0 agent", "preempt"});
  world.injector.arm(1, {after(1, FaultAction::kPartition, 1ms)});
  world.injector.start_clock(1);
  world.until(4);
  CHECK(world.log == Log{"fired 0 agent", "preempt", "fired 1 agent", "disturb 1"});
}

TEST_CASE("a worker that took its word is reported and not hit again") {
  World world;
  world.injector.arm(0, {});
  world.injector.arm_worker(1, {at_step(0, FaultAction::kKill, 5)}, 0U);
  SECTION("seen while it lives") {
    world.steps[1] = {5, std::nullopt, true};
    world.until(1);
  }
  SECTION("it died of it unseen") {
    world.dead.insert(1);
    world.steps[1] = {5, std::nullopt, true};
  }
  world.injector.worker_ended(1);
  CHECK(world.log == Log{"fired 0 3"});
}

TEST_CASE("a worker that ended otherwise takes its faults along") {
  World world;
  world.injector.arm(0, {});
  world.injector.arm_worker(
      1, {at_step(0, FaultAction::kKill, 5), at_step(1, FaultAction::kStop, 8)}, 0U);
  world.steps[1] = {4, std::nullopt, false};
  world.dead.insert(1);
  world.injector.worker_ended(1);
  world.steps[1].step = 9;
  world.look(5);
  CHECK(world.log.empty());
}

TEST_CASE("after counts from the fault clock of its own generation") {
  World world;
  ArmedFault stop = after(2, FaultAction::kStop, 5ms);
  stop.fault.lasts = 5ms;
  world.injector.arm(3, {});
  world.injector.arm_worker(0, {stop}, std::nullopt);
  world.injector.start_clock(2);
  world.look(5);
  CHECK(world.log.empty());
  world.injector.start_clock(3);
  world.until(3);
  CHECK(world.log == Log{"signal 0 19", "fired 2 3", "signal 0 18"});
}

TEST_CASE("a fault on a worker that is gone, or of a generation that is over, never fires") {
  World world;
  world.injector.arm(0, {after(1, FaultAction::kKillAgent, 1ms)});
  world.injector.arm_worker(0, {after(0, FaultAction::kKill, 1ms)}, std::nullopt);
  SECTION("worker gone") {
    world.dead.insert(0);
    world.injector.start_clock(0);
    world.until(2);
    CHECK(world.log == Log{"fired 1 agent", "kill agent"});
  }
  SECTION("generation over") {
    world.injector.start_clock(0);
    world.injector.disarm();
    world.look(5);
    CHECK(world.log.empty());
  }
  SECTION("next generation") {
    world.injector.start_clock(0);
    world.injector.arm(1, {});
    world.look(5);
    CHECK(world.log.empty());
  }
}

TEST_CASE("the agent's own fault is announced before it happens") {
  World world;
  world.injector.arm(0, {at_step(4, FaultAction::kKillAgent, 10)});
  world.injector.arm_worker(0, {}, std::nullopt);
  world.injector.arm_worker(1, {}, std::nullopt);
  world.steps[0] = {3, std::nullopt, false};
  world.look(3);
  CHECK(world.log.empty());
  world.steps[1] = {10, std::nullopt, false};
  world.until(2);
  CHECK(world.log == Log{"fired 4 agent", "kill agent"});
}

TEST_CASE("the injector may go while timers wait") {
  boost::asio::io_context io(1);
  {
    FaultInjector injector(
        io, {[](std::uint32_t, int) { return true; }, [](std::uint32_t) { return std::nullopt; },
             [](std::uint32_t, std::optional<std::uint32_t>) { FAIL(); }, [] { FAIL(); },
              [] { FAIL(); }, [](const Fault&) { FAIL(); },
              [](std::uint32_t, std::uint64_t, std::uint64_t) { FAIL(); }});
    injector.arm(0, {});
    injector.arm_worker(0, {at_step(0, FaultAction::kKill, 1), after(1, FaultAction::kKill, 1ms)},
                        0U);
    injector.start_clock(0);
  }
  io.run_for(20ms);
}

}  // namespace muster::agent
