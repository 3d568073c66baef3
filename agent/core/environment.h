// SPDX-License-Identifier: Apache-2.0
//
// What one worker is given: its variables (contracts §3) and its arguments, as pure functions of
// the configuration and the published assignment. The shell adds the five variables that hold
// paths (see WorkerPlan). Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent.h"

namespace muster::agent {

// The MUSTER_ variables that workers are given. Inherited ones (of a launcher around this one) are
// of another worker, and never reach ours; every other variable that the configuration holds does.
inline constexpr std::array<std::string_view, 11> kVariablesOfWorkers{
    "MUSTER_JOB_ID",           "MUSTER_RUN_ID",         "MUSTER_NODE",
    "MUSTER_GENERATION",       "MUSTER_RESTART_REASON", "MUSTER_STORE",
    "MUSTER_STORE_TOKEN_FILE", "MUSTER_PROGRESS_FILE",  "MUSTER_STOP_FILE",
    "MUSTER_ASSIGNMENT_FILE",  "MUSTER_RUN_DIR"};

// REQUIRES: assignment.members[assignment.group_rank] exists and local_rank is below its count.
Environment worker_environment(const AgentConfig& config, const RunId& run,
                               const Assignment& assignment, std::uint16_t master_port,
                               std::uint32_t local_rank);

// argv with ${local_rank} given its value (not in argv[0]) and --local-rank=N where asked for.
// Nothing else is touched, `$$` included.
std::vector<std::string> worker_argv(const AgentConfig& config, std::uint32_t local_rank);

// Whether OMP_NUM_THREADS is our 1 rather than the user's value; people are told once.
bool limits_omp_threads(const AgentConfig& config, std::uint32_t local_world_size);

// Every plan of this node, by local rank.
std::vector<WorkerPlan> plan_workers(const AgentConfig& config, const RunId& run,
                                     const Assignment& assignment, std::uint16_t master_port);

}  // namespace muster::agent
