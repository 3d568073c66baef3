// SPDX-License-Identifier: Apache-2.0
//
// A fault plan as data. Parsing and validation from JSON live at the command line; the server
// holds the plan and arms faults when it publishes a generation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/time.h"

namespace muster {

enum class FaultAction : std::uint8_t {
  kKill,       // a signal to a worker
  kStop,       // SIGSTOP to a worker
  kKillAgent,  // SIGKILL to the agent
  kExit,       // a worker that reports progress ends itself with a code
  kSlow,       // a worker runs a part of the time only
  kPreempt,    // SIGTERM to the agent, as from a scheduler
  kPartition,  // what agent and server say to each other is held up until it heals
  kDelay       // ... arrives later
};

// Whether the agent is hit, and not one of its workers.
constexpr bool hits_agent(FaultAction action) {
  return action == FaultAction::kKillAgent || action == FaultAction::kPreempt ||
         action == FaultAction::kPartition || action == FaultAction::kDelay;
}

// As the agent sees it.
enum class LinkDirection : std::uint8_t { kBoth, kIn, kOut };

// A victim that the server draws when it publishes the generation.
enum class RandomVictim : std::uint8_t { kRank, kNode };

// When a fault fires. Exactly one of `step`, `after` is set.
struct FaultTrigger {
  Generation generation = 0;
  std::optional<std::uint64_t> step;  // first observed step >= this
  std::optional<Duration> after;      // since generation_running
  bool operator==(const FaultTrigger&) const = default;
};

// Whom it hits. Exactly one is set; `rank` is global. The agent of a rank is that of its node.
struct FaultTarget {
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> local_rank;  // on every node that has it; not of an agent
  std::optional<NodeName> node;
  std::optional<RandomVictim> random;
  bool operator==(const FaultTarget&) const = default;
};

struct Fault {
  std::uint32_t index = 0;  // position in the plan, from 0
  FaultAction action = FaultAction::kKill;
  FaultTrigger when;
  FaultTarget on;
  int signal = 9;                 // kKill
  std::optional<Duration> lasts;  // kStop, kSlow, kPartition, kDelay; nullopt: to the end
  std::uint32_t exit_code = 1;    // kExit
  double factor = 1;              // kSlow: so many times as long for the same
  Duration by{0};                 // kDelay
  LinkDirection direction = LinkDirection::kBoth;  // kPartition
  std::string text;                                // the fault as written in the plan, compact JSON
  bool operator==(const Fault&) const = default;
};

struct FaultPlan {
  std::uint64_t seed = 0;
  std::vector<Fault> faults;
  bool operator==(const FaultPlan&) const = default;
};

// A fault bound to one process of one published generation. Sent with Prepare.
struct ArmedFault {
  Fault fault;
  std::optional<std::uint32_t> rank;  // the global rank hit; nullopt: the agent
  bool operator==(const ArmedFault&) const = default;
};

}  // namespace muster
