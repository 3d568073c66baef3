// SPDX-License-Identifier: Apache-2.0
//
// Faults of the plan, bound to the processes of a generation, and which of them fired.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/base/faults.h"
#include "proto/base/job.h"

namespace muster::rendezvous {

class FaultBook {
 public:
  // `fired`: those that an earlier server saw.
  explicit FaultBook(FaultPlan plan, std::set<std::uint32_t> fired = {});

  // The faults that hit `node`, one of `nodes` of `generation`. A fault that fired is not armed
  // again. Random victims hang on the plan's seed, the fault and the generation alone.
  std::vector<ArmedFault> arm(Generation generation, const std::vector<MemberRanks>& nodes,
                              const MemberRanks& node) const;

  // Notes that a fault fired; nullptr when it is not in the plan or was noted before.
  const Fault* fired(std::uint32_t index);
  const std::set<std::uint32_t>& fired() const { return fired_; }
  // Those that never fired, in the order of the plan.
  std::vector<const Fault*> unfired() const;

 private:
  FaultPlan plan_;
  std::set<std::uint32_t> fired_;
};

// "rank 1", "local rank 0", "node b", "a random rank".
std::string describe(const FaultTarget& target);

}  // namespace muster::rendezvous
