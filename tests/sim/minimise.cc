// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/minimise.h"

#include <algorithm>
#include <optional>

#include "tests/sim/world.h"

namespace muster::sim {
namespace {

// What happens, in all worlds that are tried: some ten seconds.
constexpr std::uint64_t kMostSteps = 20'000'000;
// A world that is smaller runs under other chances: so many of them are tried before it is held
// for sound …
constexpr std::uint64_t kDraws = 40;
// … and so many for the shortest story.
constexpr std::uint64_t kLastDraws = 1000;

class Search {
 public:
  explicit Search(const SimOptions& options) : best_(options) {
    World world(options);
    world.run();
    kind_ = kind_of(world.failure().value_or(""));
    if (world.failure()) steps_ = world.steps();
  }

  SimOptions run() {
    if (!steps_) return best_;
    do {
      changed_ = false;
      fewer_nodes();
      fewer_faults();
      shorter();
      simpler();
    } while (changed_ && spent_ < kMostSteps);
    const SimOptions smallest = best_;
    for (std::uint64_t draw = 1; draw <= kLastDraws; ++draw) {
      SimOptions other = smallest;
      other.draw = draw;
      if (fails(other) && last_steps_ < *steps_) take(other);
    }
    return best_;
  }

 private:
  // In the same way?
  bool fails(const SimOptions& options) {
    if (spent_ >= kMostSteps) return false;
    World world(options);
    world.run();
    spent_ += world.steps();
    last_steps_ = world.steps();
    return world.failure() && kind_of(*world.failure()) == kind_;
  }

  void take(const SimOptions& options) {
    best_ = options;
    steps_ = last_steps_;
    changed_ = true;
  }

  // Takes `options` if they fail under some chances.
  bool keep(SimOptions options) {
    if (fails(options)) return take(options), true;
    for (options.draw = 1; options.draw <= kDraws; ++options.draw) {
      if (fails(options)) return take(options), true;
    }
    return false;
  }

  void fewer_faults() {
    for (const Knob& knob : knobs()) {
      if (best_.*knob.value <= 0) continue;
      SimOptions without = best_;
      without.*knob.value = 0;
      keep(without);
    }
  }

  bool keep_with(std::uint32_t agents) {
    SimOptions fewer = best_;
    fewer.agents = agents;
    fewer.max_nodes = std::min(fewer.max_nodes, std::max(agents, 1U));
    fewer.min_nodes = std::min(fewer.min_nodes, fewer.max_nodes);
    return keep(fewer);
  }

  void fewer_nodes() {
    // From the smallest on: a small world costs next to nothing.
    const std::uint32_t now = best_.agents;
    for (std::uint32_t agents = 1; agents < now; agents += 1 + agents / 4) {
      if (keep_with(agents)) return;
    }
  }

  void shorter() {
    for (bool found = true; found && best_.fault_phase > 1s;) {
      SimOptions brief = best_;
      brief.fault_phase = std::max<Duration>(1s, brief.fault_phase / 2);
      found = keep(brief);
    }
    for (bool found = true; found && best_.longest_work > 1s;) {
      SimOptions brief = best_;
      brief.longest_work = std::max<Duration>(1s, brief.longest_work / 2);
      found = keep(brief);
    }
  }

  void simpler() {
    SimOptions simple = best_;
    simple.slots = 1;
    simple.mixed_slots = false;
    simple.node_ranks = NodeRanks::kNone;
    if (arguments(simple) != arguments(best_)) keep(simple);
    for (bool SimOptions::*way : {&SimOptions::hosted, &SimOptions::journaled}) {
      if (!(best_.*way)) continue;
      simple = best_;
      simple.*way = false;
      keep(simple);
    }
  }

  SimOptions best_;
  std::string kind_;
  std::optional<std::uint64_t> steps_;  // of the best; nullopt: it does not fail at all
  std::uint64_t last_steps_ = 0;
  std::uint64_t spent_ = 0;
  bool changed_ = false;
};

}  // namespace

std::string kind_of(const std::string& failure) {
  const std::size_t colon = failure.find(':');
  if (colon != std::string::npos) return failure.substr(0, colon);
  return failure.substr(0, failure.find(' ', failure.find(' ') + 1));
}

SimOptions minimise(const SimOptions& options) {
  return Search(options).run();
}

std::string arguments(const SimOptions& options) {
  const SimOptions whole = SimOptions::from_seed(options.seed);
  std::string line = "--seed " + std::to_string(options.seed);
  const auto add = [&](const std::string& what) { line += " " + what; };
  const std::string nodes =
      std::to_string(options.min_nodes) + ":" + std::to_string(options.max_nodes);
  if (options.agents != whole.agents || options.min_nodes != whole.min_nodes) {
    add("--agents " + std::to_string(options.agents) + " --nnodes " + nodes);
  }
  if (options.draw != whole.draw) add("--draw " + std::to_string(options.draw));
  if (options.slots != whole.slots || options.mixed_slots != whole.mixed_slots ||
      options.node_ranks != whole.node_ranks) {
    add("--plain");
  }
  if (options.hosted != whole.hosted) add("--not-hosted");
  if (options.journaled != whole.journaled) add("--not-journaled");
  if (options.fault_phase != whole.fault_phase) {
    add("--faults-for " + format_duration(options.fault_phase));
  }
  if (options.longest_work != whole.longest_work) {
    add("--work " + format_duration(options.longest_work));
  }
  std::string off;
  for (const Knob& knob : knobs()) {
    if (options.*knob.value != whole.*knob.value)
      off += (off.empty() ? "" : ",") + std::string(knob.name);
  }
  if (!off.empty()) add("--off " + off);
  if (!options.planted.empty()) add("--plant " + options.planted);
  return line;
}

}  // namespace muster::sim
