// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/options.h"

#include "proto/base/rng.h"

namespace muster::sim {

SimOptions SimOptions::from_seed(std::uint64_t seed) {
  Rng rng(Rng::mix(seed ^ 0x5eed0f0f710175ULL));
  const auto maybe = [&](double chance, double value) {
    const bool on = rng.unit() < chance;
    const double scale = rng.unit();
    return on ? value * scale : 0.0;
  };
  SimOptions options;
  options.seed = seed;
  options.max_nodes = 1 + static_cast<std::uint32_t>(rng.below(4));
  options.min_nodes = 1 + static_cast<std::uint32_t>(rng.below(options.max_nodes));
  if (rng.below(3) == 0) options.min_nodes = options.max_nodes;
  options.agents = options.max_nodes;
  if (rng.below(4) == 0) options.agents = 1 + static_cast<std::uint32_t>(rng.below(6));
  options.slots = 1 + static_cast<std::uint32_t>(rng.below(3));
  options.hosted = rng.below(3) == 0;

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
  options.journaled = Rng(Rng::mix(seed ^ 0x10a1a1)).below(2) == 0;
  options.longest_work = Duration(1s) * (2 + rng.below(12));
  options.server_stalls = maybe(0.25, 0.08);
  return options;
}

std::string SimOptions::text() const {
  std::string line = "seed " + std::to_string(seed) + ": nnodes " + std::to_string(min_nodes) +
                     ":" + std::to_string(max_nodes) + ", " + std::to_string(agents) +
                     " agents of " + std::to_string(slots) + ", max restarts " +
                     std::to_string(policy.max_restarts) + (hosted ? ", hosted" : "") +
                     (journaled ? ", journaled" : "");
  const auto add = [&](const char* name, double value) {
    if (value > 0) line += std::string(", ") + name + " " + std::to_string(value).substr(0, 5);
  };
  add("breaks", breaks);
  add("half-open", half_open);
  add("stalls", stalls);
  add("freezes", freezes);
  add("agent kills", agent_kills);
  add("agent signals", agent_signals);
  add("server kills", server_kills);
  add("server stalls", server_stalls);
  add("operator stops", operator_stops);
  add("restarts", restarts);
  add("late", late_start);
  add("failures", worker_failure);
  add("exec failures", exec_failure);
  add("ignore TERM", ignores_term);
  add("descendants", leaves_rest);
  add("unkillable", unkillable);
  add("report", reports);
  add("slow messages", slow_messages);
  return line;
}

}  // namespace muster::sim
