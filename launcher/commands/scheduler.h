// SPDX-License-Identifier: Apache-2.0
//
// What a scheduler that started this process says of the node's place in the job. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/commands/options.h"

namespace muster::launcher {

struct SchedulerPlace {
  std::uint32_t index = 0;  // of this node among the nodes of the job, from 0
  std::string variable;     // that says so
  bool operator==(const SchedulerPlace&) const = default;
};

// Slurm (a step of `srun`), an indexed Kubernetes Job, LeaderWorkerSet or Volcano. nullopt: none of
// them, or under another `muster run`, whose place is not its workers'.
std::optional<SchedulerPlace> scheduler_place(const EnvironmentMap& environment);

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
