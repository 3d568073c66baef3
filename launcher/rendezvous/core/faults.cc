// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/faults.h"

#include <utility>

#include "proto/base/rng.h"

namespace muster::rendezvous {

FaultBook::FaultBook(FaultPlan plan, std::set<std::uint32_t> fired)
    : plan_(std::move(plan)), fired_(std::move(fired)) {}

namespace {

// Victim of `count`; the same on every server that has the plan.
std::uint32_t draw(std::uint64_t seed, const Fault& fault, Generation generation,
                   std::uint32_t count) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  Rng rng(seed + kOdd * (fault.index + 1) + (kOdd << 1U) * static_cast<std::uint64_t>(generation));
  return static_cast<std::uint32_t>(rng.below(count));
}

// A fault whose victim is named, once it was drawn.
FaultTarget named(std::uint64_t seed, const Fault& fault, Generation generation,
                  const std::vector<MemberRanks>& nodes) {
  if (!fault.on.random) return fault.on;
  FaultTarget on;
  if (*fault.on.random == RandomVictim::kNode) {
    const auto count = static_cast<std::uint32_t>(nodes.size());
    on.node = nodes[draw(seed, fault, generation, count)].node;
    return on;
  }
  std::uint32_t world = 0;
  for (const MemberRanks& member : nodes)
    world += member.count;
  on.rank = draw(seed, fault, generation, world);
  return on;
}

}  // namespace

std::vector<ArmedFault> FaultBook::arm(Generation generation, const std::vector<MemberRanks>& nodes,
                                       const MemberRanks& node) const {
  std::vector<ArmedFault> armed;
  for (const Fault& fault : plan_.faults) {
    if (fault.when.generation != generation || fired_.contains(fault.index)) continue;
    const FaultTarget on = named(plan_.seed, fault, generation, nodes);
    // Ranks of this node that are hit.
    std::uint32_t first = node.first_rank;
    std::uint32_t count = 0;
    if (on.rank && *on.rank >= node.first_rank && *on.rank - node.first_rank < node.count) {
      first = *on.rank;
      count = 1;
    } else if (on.local_rank && *on.local_rank < node.count) {
      first = node.first_rank + *on.local_rank;
      count = 1;
    } else if (on.node && *on.node == node.node) {
      count = node.count;
    }
    if (count == 0) continue;
    if (hits_agent(fault.action)) {
      armed.push_back({fault, std::nullopt});
      continue;
    }
    for (std::uint32_t rank = first; rank < first + count; ++rank)
      armed.push_back({fault, rank});
  }
  return armed;
}

const Fault* FaultBook::fired(std::uint32_t index) {
  for (const Fault& fault : plan_.faults) {
    if (fault.index == index) return fired_.insert(index).second ? &fault : nullptr;
  }
  return nullptr;
}

std::vector<const Fault*> FaultBook::unfired() const {
  std::vector<const Fault*> missed;
  for (const Fault& fault : plan_.faults) {
    if (!fired_.contains(fault.index)) missed.push_back(&fault);
  }
  return missed;
}

std::string describe(const FaultTarget& target) {
  if (target.rank) return "rank " + std::to_string(*target.rank);
  if (target.local_rank) return "local rank " + std::to_string(*target.local_rank);
  if (target.random)
    return *target.random == RandomVictim::kRank ? "a random rank" : "a random node";
  return "node " + target.node.value_or("?");
}

}  // namespace muster::rendezvous
