// SPDX-License-Identifier: Apache-2.0
//
// A scheduler's attempt at running this node. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/commands/options.h"

namespace muster::launcher {

// A scheduler's try at running the node: a requeued Slurm job or a pod that took another's place is
// another one, a container started again in its pod the same.
struct SchedulerAttempt {
  std::string name;                      // "pod 4f-1", "Slurm job 7.0, restart 1"; empty: not known
  std::string job;                       // Slurm's, whose tries are counted
  std::optional<std::uint32_t> restart;  // … by this
  bool operator==(const SchedulerAttempt&) const = default;
};

// By Slurm's job, step and restart count, or by a pod's UID where POD_UID has it (downward API).
SchedulerAttempt scheduler_attempt(const EnvironmentMap& environment);

}  // namespace muster::launcher
