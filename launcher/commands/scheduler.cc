// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/scheduler.h"

#include <array>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

struct Scheduler {
  const char* proof;  // a variable that only it sets
  const char* index;
};

// The names are those of each scheduler's documentation.
constexpr std::array<Scheduler, 5> kSchedulers{{{"SLURM_JOB_ID", "SLURM_NODEID"},
                                                {"JOB_COMPLETION_INDEX", "JOB_COMPLETION_INDEX"},
                                                {"LWS_WORKER_INDEX", "LWS_WORKER_INDEX"},
                                                {"VC_TASK_INDEX", "VC_TASK_INDEX"},
                                                {"VK_TASK_INDEX", "VK_TASK_INDEX"}}};

std::string value_or(const EnvironmentMap& environment, const char* name, const char* other) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? other : found->second;
}

}  // namespace

std::optional<SchedulerPlace> scheduler_place(const EnvironmentMap& environment) {
  if (environment.contains("MUSTER_GENERATION")) return std::nullopt;
  for (const Scheduler& scheduler : kSchedulers) {
    const auto index = environment.find(scheduler.index);
    if (index == environment.end() || !environment.contains(scheduler.proof)) continue;
    if (const std::optional<std::uint32_t> place = read_number<std::uint32_t>(index->second)) {
      return SchedulerPlace{*place, scheduler.index};
    }
  }
  return std::nullopt;
}

SchedulerAttempt scheduler_attempt(const EnvironmentMap& environment) {
  if (environment.contains("MUSTER_GENERATION")) return {};
  if (const std::string pod = value_or(environment, "POD_UID", ""); !pod.empty()) {
    return {"pod " + pod, "", std::nullopt};
  }
  const std::string job = value_or(environment, "SLURM_JOB_ID", "");
  // Outside a step several commands of one script share the job's variables.
  const std::string step = value_or(environment, "SLURM_STEP_ID", "");
  if (job.empty() || step.empty()) return {};
  const std::string count = value_or(environment, "SLURM_RESTART_COUNT", "0");
  return {cat("Slurm job ", job, ".", step, ", restart ", count), cat("Slurm job ", job),
          read_number<std::uint32_t>(count)};
}

}  // namespace muster::launcher
