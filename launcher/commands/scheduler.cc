// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/scheduler.h"

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

std::string value_or(const EnvironmentMap& environment, const char* name, const char* other) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? other : found->second;
}

}  // namespace

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
