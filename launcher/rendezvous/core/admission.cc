// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/admission.h"

#include <utility>

namespace muster::rendezvous {

namespace {

using Why = JoinRefused::Why;

constexpr Duration kLongest = std::chrono::hours(24 * 3660);  // ten years: sums stay in range

bool in_range(Duration duration) {
  return duration >= Duration{0} && duration <= kLongest;
}

bool times_in_range(const JobPolicy& policy) {
  for (const Duration duration :
       {policy.restart_backoff_max, policy.join_timeout, policy.last_call, policy.stop_grace,
        policy.heartbeat, policy.node_timeout, policy.reconnect_grace, policy.recovery_window,
        policy.server_grace, policy.grow_interval, policy.quarantine.window,
        policy.quarantine.cooldown, policy.max_restarts_window.value_or(Duration{0})}) {
    if (!in_range(duration)) return false;
  }
  return policy.heartbeat > Duration{0} && policy.node_timeout > Duration{0};
}

// Room to count on from whatever an agent brings.
bool numbers_in_range(const Reattach& known) {
  constexpr std::uint64_t kMost = 1ULL << 48U;
  constexpr std::uint32_t kMostRestarts = 1000000;
  return known.generation >= kNoGeneration && known.generation < static_cast<Generation>(kMost) &&
         known.incarnation < kMost && known.epoch < kMost && known.restarts_used < kMostRestarts;
}

std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

// The most that FaultBook::arm() hands to this node: one of a node hits each of its workers.
std::size_t armed_faults(const FaultPlan& plan, const NodeFacts& node) {
  std::size_t count = 0;
  for (const Fault& fault : plan.faults)
    count += fault.on.node == node.name || fault.on.random == RandomVictim::kNode ? node.slots : 1;
  return count;
}

std::string by_holder(const std::string& holder) {
  return holder.empty() ? "" : " (" + holder + ")";
}

std::string node_count(const JobSpec& spec) {
  if (spec.min_nodes == spec.max_nodes) return std::to_string(spec.max_nodes);
  return std::to_string(spec.min_nodes) + ":" + std::to_string(spec.max_nodes);
}

}  // namespace

JoinRefused refusal(Why why, std::string text) {
  return {why, std::move(text), 2};
}

std::optional<JoinRefused> refused_for_content(const Envelope& envelope, const Join& join) {
  const JobSpec& spec = join.spec;
  const NodeFacts& node = join.node;
  const auto invalid = [](const char* text) { return refusal(Why::kInvalid, text); };
  if (spec.job.empty() || spec.job.size() > kMaxNameBytes) {
    return invalid("the job id must have 1 to 255 bytes");
  }
  if (node.name.empty() || node.name.size() > kMaxNameBytes) {
    return invalid("the node name must have 1 to 255 bytes");
  }
  if (envelope.job != spec.job || envelope.node != node.name) {
    return invalid("the envelope names another job or node than the join");
  }
  if (spec.min_nodes == 0 || spec.min_nodes > spec.max_nodes) {
    return invalid("nnodes needs 1 <= MIN <= MAX");
  }
  if (node.node_rank && *node.node_rank >= spec.max_nodes) {
    return refusal(Why::kInvalid, "node rank " + std::to_string(*node.node_rank) + " of node " +
                                      quoted(node.name) + " is out of range: a job with --nnodes " +
                                      node_count(spec) + " has node ranks below " +
                                      std::to_string(spec.max_nodes));
  }
  if (node.slots == 0 || node.slots > kMaxSlots) {
    return invalid("a node has 1 to 4096 workers");
  }
  if (armed_faults(spec.faults, node) > kMaxFaults) {
    return refusal(Why::kInvalid, "the fault plan sets more than " + std::to_string(kMaxFaults) +
                                      " faults on node " + quoted(node.name));
  }
  if (join.reattach && !numbers_in_range(*join.reattach)) {
    return invalid("a number of the earlier attachment is out of range");
  }
  if (!times_in_range(spec.policy)) return invalid("a duration is negative, zero or too long");
  return std::nullopt;
}

std::optional<JoinRefused> refused_by_server(const Options& options, const Join& join) {
  if (!options.only_job || *options.only_job == join.spec.job) return std::nullopt;
  return refusal(Why::kOtherJob, "this server" + by_holder(options.holder) + " serves job " +
                                     quoted(*options.only_job) + " only, not " +
                                     quoted(join.spec.job));
}

std::optional<JoinRefused> refused_by_job(const JobSpec& ours, const NodeRange& asked,
                                          const Join& join, const std::string& holder) {
  const JobSpec& theirs = join.spec;
  const std::string job = "job " + quoted(ours.job) + by_holder(holder);
  if (theirs.program_hash != ours.program_hash) {
    return refusal(Why::kOtherProgram, job + " runs program " + quoted(ours.program) + ", not " +
                                           quoted(theirs.program));
  }
  const NodeRange brought{theirs.min_nodes, theirs.max_nodes};
  if (brought != asked && brought != NodeRange{ours.min_nodes, ours.max_nodes}) {
    return refusal(Why::kOtherNodes,
                   job + " has --nnodes " + node_count(ours) + ", not " + node_count(theirs));
  }
  if (theirs.faults != ours.faults) {
    return refusal(Why::kOtherFaultPlan, job + " has another fault plan (" +
                                             std::to_string(ours.faults.faults.size()) +
                                             " faults, this node brings " +
                                             std::to_string(theirs.faults.faults.size()) + ")");
  }
  return std::nullopt;
}

}  // namespace muster::rendezvous
