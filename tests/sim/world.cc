// SPDX-License-Identifier: Apache-2.0
//
// The run: faults first, then quiet, then the demand that everyone comes to an end.
#include "tests/sim/world.h"

#include <cmath>

#include "tests/sim/node.h"

namespace muster::sim {
namespace {

// After the last fault: a join time-out, work, a stop with its grace, and as much again for a
// forming that was under way. Generous; the point is that it is finite.
constexpr Duration kTimeToEnd = 120s;
// After the last agent: until its loss is noticed, a join time-out, and until nobody can come
// back for the outcome.
constexpr Duration kTimeToForget = 60s;

}  // namespace

World::World(const SimOptions& from, Notes notes)
    : options(from),
      rng(from.draw == 0 ? from.seed : Rng::mix(from.seed) + from.draw),
      checks(clock, options),
      planted(from.planted),
      model_(options),
      reasons_(options),
      notes_(notes) {
  for (std::size_t i = 0; i < options.agents; ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i));
  }
  barriers_.resize(nodes_.size());
  checks.set_find_process([this](const auto& is_it) -> const Process* {
    for (const auto& node : nodes_) {
      for (const ProcessPtr& process : node->processes()) {
        if (is_it(*process)) return process.get();
      }
    }
    return nullptr;
  });
}

World::~World() = default;

Duration World::between(Duration low, Duration high) {
  const auto width = static_cast<std::uint64_t>((high - low).count());
  return low + Duration(static_cast<Duration::rep>(rng.below(width + 1)));
}

void World::keep(std::string_view who, const std::string& what) {
  hash_ = hash_text(what, hash_ ^ static_cast<std::uint64_t>(clock.now().since_origin.count()));
  if (notes_ != Notes::kTrace) return;
  trace_.push_back("[" + std::to_string(to_seconds(clock.now().since_origin)) + "] " +
                   std::string(who) + ": " + what);
}

// REQUIRES: quiet.
bool World::all_ended() {
  while (ended_ < nodes_.size() && !nodes_[ended_]->runs() && nodes_[ended_]->ever_ran())
    ++ended_;
  return ended_ == nodes_.size();
}

void World::run() {
  start_server();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Duration start = chance(options.late_start) ? between(1s, 15s) : between(0s, 200ms);
    clock.after(start, [this, i] {
      if (!nodes_[i]->ever_ran()) nodes_[i]->start_agent();
    });
  }
  plan_faults();
  watch_leases();
  const Instant end = Instant{options.fault_phase + kTimeToEnd};
  std::optional<Instant> ended_at;
  while (!checks.failed() && clock.run_one()) {
    if (quiet && all_ended()) {
      if (!ended_at) ended_at = clock.now();
      if (clock.now() < *ended_at + kTimeToForget) continue;
      if (server_) checks.long_after();
      return;
    }
    if (clock.now() > end) {
      std::string who;
      for (const auto& node : nodes_) {
        if (node->runs()) who += " " + node->state() + ";";
      }
      checks.fail("liveness: not everyone ended:" + who);
    }
  }
}

}  // namespace muster::sim
