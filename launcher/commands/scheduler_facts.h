// SPDX-License-Identifier: Apache-2.0
//
// --scheduler: which scheduler started this process, and what it says of the job: how many nodes,
// which of them this is, and where the first one is. Pure: variables in, facts out.
//
// Sources: the documentation of Slurm's srun, Open MPI's mpirun, MPICH's PMI, Kubernetes' indexed
// Jobs, JobSet, LeaderWorkerSet, Volcano, and Kubeflow's training operator (version 1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/options.h"

namespace muster::launcher {

struct SchedulerFacts {
  std::string name;                    // as --scheduler has it
  std::string evidence;                // "SLURM_JOB_ID=7, SLURM_NODEID=1"
  std::optional<std::uint32_t> index;  // of this node
  std::optional<std::uint32_t> nodes;
  std::string first_host;       // where the first node is; empty: it does not say
  bool strips_pmi = false;      // workers must not see its PMI variables
  bool flat_exit_code = false;  // its controller knows exit codes 0 and 1
  bool operator==(const SchedulerFacts&) const = default;
};

// The names that --scheduler takes, besides auto and none.
const std::vector<std::string_view>& scheduler_names();

// `wanted`: one of the names, or "auto": the first that shows itself. nullopt: it did not start us.
std::optional<SchedulerFacts> find_scheduler(const EnvironmentMap& environment,
                                             std::string_view wanted);

// The variable without which `name` is not there.
std::string_view proof_of_scheduler(std::string_view name);

// The first of Slurm's "node[07-09,12],login1": "node07".
std::string first_of_nodelist(std::string_view list);

}  // namespace muster::launcher
