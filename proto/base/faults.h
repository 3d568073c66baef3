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

enum class FaultAction : std::uint8_t { kKill, kStop, kKillAgent };

// When a fault fires. Exactly one of `step`, `after` is set.
struct FaultTrigger {
  Generation generation = 0;
  std::optional<std::uint64_t> step;  // first observed step >= this
  std::optional<Duration> after;      // since generation_running
  bool operator==(const FaultTrigger&) const = default;
};

// Whom it hits. Exactly one is set; `rank` is global.
struct FaultTarget {
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> local_rank;  // on every node that has it; kill-agent: not allowed
  std::optional<NodeName> node;
  bool operator==(const FaultTarget&) const = default;
};

struct Fault {
  std::uint32_t index = 0;  // position in the plan, from 0
  FaultAction action = FaultAction::kKill;
  FaultTrigger when;
  FaultTarget on;
  int signal = 9;                    // kKill
  std::optional<Duration> stop_for;  // kStop: SIGCONT after this; nullopt: never
  std::string text;                  // the fault as written in the plan, compact JSON
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
  std::optional<std::uint32_t> rank;  // the global rank hit; nullopt: the agent (kKillAgent)
  bool operator==(const ArmedFault&) const = default;
};

}  // namespace muster
