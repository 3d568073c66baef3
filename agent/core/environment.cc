// SPDX-License-Identifier: Apache-2.0
#include "agent/core/environment.h"

#include <array>
#include <string_view>

#include "proto/base/check.h"

namespace muster::agent {
namespace {

// What a process started by srun or mpirun carries; a worker that sees it would take its own
// MPI library for part of the outer step.
constexpr std::array<std::string_view, 3> kStepPrefixes{"PMI_", "PMIX_", "OMPI_COMM_WORLD_"};

bool is_dropped(const std::string& name, bool strip_step) {
  for (const std::string_view given : kVariablesOfWorkers) {
    if (name == given) return true;
  }
  if (name == "TORCHELASTIC_ERROR_FILE") return true;  // the agent's own; the shell sets theirs
  if (!strip_step) return false;
  for (const std::string_view prefix : kStepPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

void set_torch_variables(Environment& env, const AgentConfig& config, const Assignment& assignment,
                         std::uint16_t master_port, std::uint32_t local_rank) {
  const MemberRanks& own = assignment.members[assignment.group_rank];
  const std::string rank = text(own.first_rank + local_rank);
  const std::string world_size = text(assignment.world_size);
  env["RANK"] = rank;
  env["LOCAL_RANK"] = text(local_rank);
  env["WORLD_SIZE"] = world_size;
  env["LOCAL_WORLD_SIZE"] = text(own.count);
  env["GROUP_RANK"] = text(assignment.group_rank);
  env["GROUP_WORLD_SIZE"] = text(assignment.members.size());
  env["ROLE_RANK"] = rank;  // one role a job
  env["ROLE_WORLD_SIZE"] = world_size;
  env["ROLE_NAME"] = config.role_name;
  env["MASTER_ADDR"] = assignment.master_addr;
  env["MASTER_PORT"] = text(master_port);
  env["TORCHELASTIC_RUN_ID"] = config.spec.job;
  env["TORCHELASTIC_MAX_RESTARTS"] = text(assignment.max_restarts);
  env["TORCHELASTIC_RESTART_COUNT"] = text(assignment.restarts_used);
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // rank 0 hosts the store itself
  env.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  env.try_emplace("PYTHONUNBUFFERED", "1");
  if (local_rank < config.own_devices.size()) {
    env["LOCAL_RANK"] = "0";
    env["CUDA_VISIBLE_DEVICES"] = config.own_devices[local_rank];
  }
  if (limits_omp_threads(config, own.count)) env["OMP_NUM_THREADS"] = "1";
}

}  // namespace

bool limits_omp_threads(const AgentConfig& config, std::uint32_t local_world_size) {
  return local_world_size > 1 && !config.environment.contains("OMP_NUM_THREADS");
}

Environment worker_environment(const AgentConfig& config, const RunId& run,
                               const Assignment& assignment, std::uint16_t master_port,
                               std::uint32_t local_rank) {
  MUSTER_CHECK(assignment.group_rank < assignment.members.size());
  MUSTER_CHECK(local_rank < assignment.members[assignment.group_rank].count);
  Environment env;
  for (const auto& [name, value] : config.environment) {
    if (!is_dropped(name, config.scheduler_strips_pmi)) env.emplace(name, value);
  }
  set_torch_variables(env, config, assignment, master_port, local_rank);
  env["MUSTER_JOB_ID"] = config.spec.job;
  env["MUSTER_RUN_ID"] = run;
  env["MUSTER_NODE"] = config.node.name;
  env["MUSTER_GENERATION"] = std::to_string(assignment.generation);
  env["MUSTER_RESTART_REASON"] = to_word(assignment.reason);
  if (!config.store_endpoint.empty()) env["MUSTER_STORE"] = config.store_endpoint;
  if (!config.store_token_file.empty()) env["MUSTER_STORE_TOKEN_FILE"] = config.store_token_file;
  return env;
}

std::vector<std::string> worker_argv(const AgentConfig& config, std::uint32_t local_rank) {
  constexpr std::string_view kMacro = "${local_rank}";
  const std::string value = text(local_rank);
  std::vector<std::string> argv = config.argv;
  for (std::size_t i = 1; config.substitute_local_rank && i < argv.size(); ++i) {
    std::string& argument = argv[i];
    for (std::size_t at = argument.find(kMacro); at != std::string::npos;
         at = argument.find(kMacro, at + value.size())) {
      argument.replace(at, kMacro.size(), value);
    }
  }
  // The number by which a program chooses its device.
  const bool own_device = local_rank < config.own_devices.size();
  if (config.pass_local_rank) argv.push_back("--local-rank=" + (own_device ? "0" : value));
  return argv;
}

std::vector<WorkerPlan> plan_workers(const AgentConfig& config, const RunId& run,
                                     const Assignment& assignment, std::uint16_t master_port) {
  MUSTER_CHECK(assignment.group_rank < assignment.members.size());
  const MemberRanks& own = assignment.members[assignment.group_rank];
  std::vector<WorkerPlan> plans;
  plans.reserve(own.count);
  for (std::uint32_t local_rank = 0; local_rank < own.count; ++local_rank) {
    WorkerPlan plan;
    plan.local_rank = local_rank;
    plan.rank = own.first_rank + local_rank;
    plan.argv = worker_argv(config, local_rank);
    plan.environment = worker_environment(config, run, assignment, master_port, local_rank);
    for (const ArmedFault& fault : assignment.faults) {
      if (fault.rank == plan.rank) plan.faults.push_back(fault);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace muster::agent
