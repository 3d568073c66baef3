// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/minimise.h"

#include <algorithm>
#include <optional>

#include "tests/sim/world.h"

namespace muster::sim {
namespace {

constexpr int kMostRuns = 300;

std::optional<std::string> failure_of(const SimOptions& options) {
  World world(options);
  world.run();
  return world.failure();
}

class Search {
 public:
  explicit Search(const SimOptions& options)
      : best_(options), kind_(kind_of(failure_of(options).value_or(""))) {}

  SimOptions run() {
    do {
      changed_ = false;
      fewer_nodes();
      fewer_faults();
      shorter();
      simpler();
    } while (changed_ && runs_ < kMostRuns);
    return best_;
  }

 private:
  // Keeps `options` if they fail in the same way.
  bool keep(const SimOptions& options) {
    if (runs_ >= kMostRuns) return false;
    ++runs_;
    const std::optional<std::string> failure = failure_of(options);
    if (!failure || kind_of(*failure) != kind_) return false;
    best_ = options;
    return changed_ = true;
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
    while (best_.agents > 2 && keep_with(best_.agents / 2)) {
    }
    while (best_.agents > 1 && keep_with(best_.agents - 1)) {
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
  int runs_ = 0;
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
