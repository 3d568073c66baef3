// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/faults.h"

#include <utility>

namespace muster::rendezvous {

FaultBook::FaultBook(FaultPlan plan, std::set<std::uint32_t> fired)
    : plan_(std::move(plan)), fired_(std::move(fired)) {}

std::vector<ArmedFault> FaultBook::arm(Generation generation, const MemberRanks& node) const {
  std::vector<ArmedFault> armed;
  for (const Fault& fault : plan_.faults) {
    if (fault.when.generation != generation || fired_.contains(fault.index)) continue;
    const FaultTarget& on = fault.on;
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
    if (fault.action == FaultAction::kKillAgent) {
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
  return "node " + target.node.value_or("?");
}

}  // namespace muster::rendezvous
