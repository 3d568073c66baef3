// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/options.h"

#include <algorithm>

#include "proto/base/rng.h"

namespace muster::sim {
namespace {

// Half of all jobs have six nodes at most; one in a hundred has more than a hundred.
std::uint32_t draw_agents(Rng& rng) {
  const std::uint64_t share = rng.below(1000);
  const auto between = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(rng.below(high - low + 1));
  };
  if (share < 10) return between(101, 300);
  if (share < 40) return between(31, 100);
  if (share < 150) return between(13, 30);
  if (share < 450) return between(7, 12);
  return between(1, 6);
}

void draw_shape(Rng& rng, SimOptions& options) {
  options.agents = draw_agents(rng);
  options.max_nodes = options.agents;
  switch (rng.below(6)) {
    case 0: options.max_nodes = 1 + static_cast<std::uint32_t>(rng.below(options.agents)); break;
    case 1: options.max_nodes += 1 + static_cast<std::uint32_t>(rng.below(3)); break;
    default: break;
  }
  options.min_nodes = 1 + static_cast<std::uint32_t>(rng.below(options.max_nodes));
  if (rng.below(3) == 0) options.min_nodes = options.max_nodes;
  options.slots = 1 + static_cast<std::uint32_t>(rng.below(3));
  options.mixed_slots = rng.below(3) == 0;
  const std::uint64_t ranks = rng.below(8);
  if (options.agents <= options.max_nodes && ranks < 2) {
    options.node_ranks = ranks == 0 ? NodeRanks::kAll : NodeRanks::kSome;
  }
  options.hosted = rng.below(3) == 0;
}

// Rules that came later draw for themselves, so that old seeds keep what they drew.
void draw_rules(Rng rng, JobPolicy& policy) {
  policy.grow = static_cast<Grow>(rng.below(3));
  policy.grow_interval = Duration(1s) * rng.below(12);
  if (rng.below(4) == 0) policy.max_no_progress = 1 + static_cast<std::uint32_t>(rng.below(3));
  if (rng.below(3) == 0) {
    policy.quarantine = {1 + static_cast<std::uint32_t>(rng.below(2)), 20s,
                         Duration(1s) * (1 + rng.below(8))};
  }
  if (rng.below(5) == 0) policy.fence = Fence::kStrict;
  if (rng.below(3) == 0) policy.max_spares = static_cast<std::uint32_t>(rng.below(3));
}

// What operators ask for; drawn apart for the same reason.
void draw_orders(Rng rng, SimOptions& options) {
  const auto maybe = [&](double chance, double value) {
    const bool on = rng.unit() < chance;
    const double scale = rng.unit();
    return on ? value * scale : 0.0;
  };
  options.operator_scales = maybe(0.2, 0.15);
  options.operator_drains = maybe(0.2, 0.1);
  options.operator_restarts = maybe(0.15, 0.1);
  options.indexed = rng.below(4) == 0;
}

// Hangs, clocks, partitions and power losses; drawn apart for the same reason.
void draw_troubles(Rng rng, SimOptions& options) {
  const auto maybe = [&](double chance, double value) {
    const bool on = rng.unit() < chance;
    const double scale = rng.unit();
    return on ? value * scale : 0.0;
  };
  options.hangs = maybe(0.15, 0.3);
  options.one_way = maybe(0.25, 0.08);
  options.partitions = maybe(0.25, 0.1);
  options.agent_leaps = maybe(0.2, 0.05);
  options.server_leaps = maybe(0.2, 0.06);
  options.wall_steps = maybe(0.3, 1.0);
  options.lost_tails = maybe(0.03, 1.0);
  options.peers = maybe(0.5, 1.0);
  options.attempts = maybe(0.4, 1.0);
  if (rng.below(4) == 0) options.policy.max_restarts_window = Duration(1s) * (2 + rng.below(12));
  options.suspends = maybe(0.2, 0.1);
  options.hang_watch = maybe(0.5, 1.0);
  if (options.hosted) options.lost_tails = 0;
  if (options.lost_tails > 0) {
    options.journaled = true;
    options.server_kills = std::max(options.server_kills, 0.05);
  }
}

// What strikes each node or worker strikes a large job no more often than one of this size:
// otherwise none of them would ever come to run.
void tame(SimOptions& options) {
  constexpr double kNodes = 8;
  if (options.agents <= kNodes) return;
  const double share = kNodes / options.agents;
  for (double SimOptions::*rate :
       {&SimOptions::breaks, &SimOptions::half_open, &SimOptions::stalls, &SimOptions::freezes,
        &SimOptions::agent_kills, &SimOptions::agent_signals, &SimOptions::worker_failure,
        &SimOptions::exec_failure, &SimOptions::unkillable, &SimOptions::hangs,
        &SimOptions::one_way, &SimOptions::agent_leaps, &SimOptions::suspends}) {
    options.*rate *= share;
  }
  if (options.agents > 30) options.fault_phase = 15s;
}

}  // namespace

SimOptions SimOptions::from_seed(std::uint64_t seed) {
  Rng rng(Rng::mix(seed ^ 0x5eed0f0f710175ULL));
  const auto maybe = [&](double chance, double value) {
    const bool on = rng.unit() < chance;
    const double scale = rng.unit();
    return on ? value * scale : 0.0;
  };
  SimOptions options;
  options.seed = seed;
  draw_shape(rng, options);

  JobPolicy& policy = options.policy;
  policy.max_restarts = static_cast<std::uint32_t>(rng.below(4));
  policy.max_node_losses = static_cast<std::uint32_t>(rng.below(4));
  policy.restart_backoff_max = 4s;
  policy.join_timeout = 20s;
  policy.last_call = 2s;
  policy.stop_grace = rng.below(2) == 0 ? 3s : 1s;
  policy.heartbeat = 1s;
  policy.node_timeout = 5s;
  policy.reconnect_grace = 500ms;
  policy.recovery_window = 5s;
  policy.server_grace = rng.below(2) == 0 ? 8s : 15s;

  options.breaks = maybe(0.5, 0.2);
  options.half_open = maybe(0.3, 0.1);
  options.stalls = maybe(0.4, 0.15);
  options.freezes = maybe(0.3, 0.08);
  options.agent_kills = maybe(0.4, 0.06);
  options.agent_signals = maybe(0.4, 0.06);
  options.server_kills = maybe(0.25, 0.08);
  options.operator_stops = maybe(0.15, 0.08);
  options.restarts = maybe(0.5, 1.0);
  options.late_start = maybe(0.3, 0.6);
  options.worker_failure = maybe(0.6, 0.5);
  options.exec_failure = maybe(0.15, 0.2);
  options.ignores_term = maybe(0.3, 0.4);
  options.leaves_rest = maybe(0.3, 0.5);
  options.unkillable = maybe(0.08, 0.2);
  options.slow_messages = maybe(0.3, 0.05);
  options.reports = maybe(0.5, 1.0);
  options.journaled = rng.below(2) == 0;
  options.longest_work = Duration(1s) * (2 + rng.below(12));
  options.server_stalls = maybe(0.25, 0.08);
  draw_rules(Rng(Rng::mix(seed ^ 0x9047)), policy);
  draw_orders(Rng(Rng::mix(seed ^ 0x0b5e)), options);
  draw_troubles(Rng(Rng::mix(seed ^ 0x71de)), options);
  tame(options);
  return options;
}

std::string SimOptions::text() const {
  std::string line = "seed " + std::to_string(seed) + ": nnodes " + std::to_string(min_nodes) +
                     ":" + std::to_string(max_nodes) + ", " + std::to_string(agents) +
                     " agents of " + (mixed_slots ? "up to " : "") + std::to_string(slots) +
                     ", max restarts " + std::to_string(policy.max_restarts) +
                     (node_ranks != NodeRanks::kNone ? ", node ranks" : "") +
                     (hosted ? ", hosted" : "") + (journaled ? ", journaled" : "") +
                     ", faults for " + format_duration(fault_phase);
  if (policy.grow == Grow::kCheckpoint) line += ", grow at checkpoints";
  if (policy.grow == Grow::kNever) line += ", grow never";
  if (policy.max_spares) line += ", spares " + std::to_string(*policy.max_spares);
  if (policy.max_restarts_window) {
    line += ", restarts within " + format_duration(*policy.max_restarts_window);
  }
  if (policy.quarantine.causes > 0) line += ", quarantine";
  if (policy.fence == Fence::kStrict) line += ", strict fence";
  if (indexed) line += ", scheduler indexes";
  for (const Knob& knob : knobs()) {
    const double value = this->*knob.value;
    if (value <= 0) continue;
    line += std::string(", ") + knob.name + " " + std::to_string(value).substr(0, 5);
  }
  return line;
}

std::uint32_t SimOptions::slots_of(std::size_t index) const {
  if (!mixed_slots) return slots;
  return 1 + static_cast<std::uint32_t>(Rng(Rng::mix(seed + index)).below(slots));
}

std::optional<std::uint32_t> SimOptions::node_rank_of(std::size_t index) const {
  const bool has = node_ranks == NodeRanks::kAll || (node_ranks == NodeRanks::kSome && index % 2);
  if (!has) return std::nullopt;
  return max_nodes - 1 - static_cast<std::uint32_t>(index);
}

std::optional<std::uint32_t> SimOptions::scheduler_index_of(std::size_t index) const {
  if (!indexed || index % 5 == 4) return std::nullopt;  // not everyone is told
  return agents - 1 - static_cast<std::uint32_t>(index);
}

// "a" … "z", then "n26" and on: their natural order is not the order of their numbers.
NodeName node_name(std::size_t index) {
  if (index < 26) return std::string(1, static_cast<char>('a' + index));
  return "n" + std::to_string(index);
}

std::string node_address(std::size_t index) {
  return "10.0." + std::to_string(index / 250) + "." + std::to_string(index % 250 + 1);
}

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> all{{"breaks", &SimOptions::breaks},
                                     {"half-open", &SimOptions::half_open},
                                     {"stalls", &SimOptions::stalls},
                                     {"freezes", &SimOptions::freezes},
                                     {"agent-kills", &SimOptions::agent_kills},
                                     {"agent-signals", &SimOptions::agent_signals},
                                     {"server-kills", &SimOptions::server_kills},
                                     {"server-stalls", &SimOptions::server_stalls},
                                     {"operator-stops", &SimOptions::operator_stops},
                                     {"operator-scales", &SimOptions::operator_scales},
                                     {"operator-drains", &SimOptions::operator_drains},
                                     {"operator-restarts", &SimOptions::operator_restarts},
                                     {"restarts", &SimOptions::restarts},
                                     {"late-starts", &SimOptions::late_start},
                                     {"failures", &SimOptions::worker_failure},
                                     {"exec-failures", &SimOptions::exec_failure},
                                     {"ignores-term", &SimOptions::ignores_term},
                                     {"descendants", &SimOptions::leaves_rest},
                                     {"unkillable", &SimOptions::unkillable},
                                     {"reports", &SimOptions::reports},
                                     {"slow-messages", &SimOptions::slow_messages},
                                     {"one-way", &SimOptions::one_way},
                                     {"partitions", &SimOptions::partitions},
                                     {"agent-leaps", &SimOptions::agent_leaps},
                                     {"server-leaps", &SimOptions::server_leaps},
                                     {"wall-steps", &SimOptions::wall_steps},
                                     {"lost-tails", &SimOptions::lost_tails},
                                     {"hangs", &SimOptions::hangs},
                                     {"hang-watch", &SimOptions::hang_watch},
                                     {"peers", &SimOptions::peers},
                                     {"attempts", &SimOptions::attempts},
                                     {"suspends", &SimOptions::suspends}};
  return all;
}

}  // namespace muster::sim
