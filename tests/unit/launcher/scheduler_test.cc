// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/scheduler.h"

#include <catch2/catch.hpp>

namespace muster::launcher {

TEST_CASE("a scheduler's number of this node", "[scheduler]") {
  CHECK_FALSE(scheduler_place({}).has_value());
  CHECK(scheduler_place({{"SLURM_JOB_ID", "7"}, {"SLURM_NODEID", "3"}}) ==
        SchedulerPlace{3, "SLURM_NODEID"});
  CHECK(scheduler_place({{"JOB_COMPLETION_INDEX", "0"}}) ==
        SchedulerPlace{0, "JOB_COMPLETION_INDEX"});
  CHECK(scheduler_place({{"LWS_WORKER_INDEX", "12"}}) == SchedulerPlace{12, "LWS_WORKER_INDEX"});
  CHECK(scheduler_place({{"VC_TASK_INDEX", "1"}, {"VK_TASK_INDEX", "1"}}) ==
        SchedulerPlace{1, "VC_TASK_INDEX"});
}

TEST_CASE("what is no number of a node is not taken for one", "[scheduler]") {
  CHECK_FALSE(scheduler_place({{"SLURM_NODEID", "3"}}).has_value());  // a leftover without its job
  for (const char* odd : {"", "-1", "1a", " 1", "99999999999"}) {
    CHECK_FALSE(scheduler_place({{"JOB_COMPLETION_INDEX", odd}}).has_value());
  }
  // A worker of ours has the variables of the node, and is none itself.
  CHECK_FALSE(
      scheduler_place({{"JOB_COMPLETION_INDEX", "2"}, {"MUSTER_GENERATION", "0"}}).has_value());
}

TEST_CASE("a scheduler's attempts, and how Slurm counts them", "[scheduler]") {
  CHECK(scheduler_attempt({}) == SchedulerAttempt{});
  CHECK(scheduler_attempt({{"POD_UID", "4f-1"}}) == SchedulerAttempt{"pod 4f-1", "", std::nullopt});
  const EnvironmentMap step{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "2"}};
  CHECK(scheduler_attempt(step) == SchedulerAttempt{"Slurm job 7.2, restart 0", "Slurm job 7", 0U});
  EnvironmentMap requeued = step;
  requeued["SLURM_RESTART_COUNT"] = "1";
  CHECK(scheduler_attempt(requeued) ==
        SchedulerAttempt{"Slurm job 7.2, restart 1", "Slurm job 7", 1U});
  // A pod of an operator for Slurm has both: the pod is the narrower one.
  requeued["POD_UID"] = "4f-1";
  CHECK(scheduler_attempt(requeued).name == "pod 4f-1");
  // Commands of a batch script, one after the other, are no step.
  CHECK(scheduler_attempt({{"SLURM_JOB_ID", "7"}}).name.empty());
  requeued["MUSTER_GENERATION"] = "0";
  CHECK(scheduler_attempt(requeued).name.empty());
}

}  // namespace muster::launcher
