// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/scheduler.h"

#include <catch2/catch.hpp>

#include "launcher/commands/scheduler_facts.h"

namespace muster::launcher {

TEST_CASE("who started this node, and what it says of the job", "[scheduler]") {
  CHECK_FALSE(find_scheduler({}, "auto"));
  const auto slurm = find_scheduler({{"SLURM_JOB_ID", "7"},
                                     {"SLURM_NODEID", "3"},
                                     {"SLURM_JOB_NUM_NODES", "4"},
                                     {"SLURM_JOB_NODELIST", "gpu[08-11]"}},
                                    "auto");
  REQUIRE(slurm);
  CHECK(slurm->name == "slurm");
  CHECK(slurm->index == 3U);
  CHECK(slurm->nodes == 4U);
  CHECK(slurm->first_host == "gpu08");
  CHECK(slurm->strips_pmi);
  CHECK(slurm->evidence ==
        "SLURM_JOB_ID=7, SLURM_NODEID=3, SLURM_JOB_NUM_NODES=4, SLURM_JOB_NODELIST=gpu[08-11]");
  CHECK(find_scheduler({{"JOB_COMPLETION_INDEX", "0"}}, "auto")->name == "indexed-job");
  CHECK(find_scheduler({{"JOBSET_NAME", "x"}, {"JOB_COMPLETION_INDEX", "2"}}, "auto")->name ==
        "jobset");
  const auto lws = find_scheduler(
      {{"LWS_WORKER_INDEX", "1"}, {"LWS_GROUP_SIZE", "2"}, {"LWS_LEADER_ADDRESS", "pod-0.svc"}},
      "lws");
  CHECK((lws->index == 1U && lws->nodes == 2U && lws->first_host == "pod-0.svc"));
  CHECK(find_scheduler({{"VC_TASK_INDEX", "1"}, {"VK_TASK_INDEX", "1"}}, "auto")->index == 1U);
  CHECK_FALSE(find_scheduler({{"LWS_WORKER_INDEX", "1"}}, "slurm"));
}

TEST_CASE("ranks of mpirun are nodes where each has one", "[scheduler]") {
  EnvironmentMap environment{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  CHECK_FALSE(find_scheduler(environment, "auto"));
  environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  CHECK(find_scheduler(environment, "mpi")->nodes == 2U);
}

TEST_CASE("Kubeflow's first operator is known by torch's own variables", "[scheduler]") {
  EnvironmentMap pod{{"PET_NNODES", "2"},
                     {"MASTER_ADDR", "job-master-0"},
                     {"MASTER_PORT", "23456"},
                     {"WORLD_SIZE", "2"},
                     {"RANK", "1"},
                     {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  CHECK(find_scheduler(pod, "auto")->flat_exit_code);
  pod.erase("WORLD_SIZE");
  CHECK_FALSE(find_scheduler(pod, "auto"));
}

TEST_CASE("what is no number of a node is not taken for one", "[scheduler]") {
  CHECK_FALSE(find_scheduler({{"SLURM_NODEID", "3"}}, "auto"));  // a leftover without its job
  for (const char* odd : {"-1", "1a", " 1", "99999999999"}) {
    CHECK_FALSE(find_scheduler({{"JOB_COMPLETION_INDEX", odd}}, "auto")->index);
  }
}

TEST_CASE("the first of a list of Slurm's", "[scheduler]") {
  CHECK(first_of_nodelist("node1") == "node1");
  CHECK(first_of_nodelist("login,node[1-2]") == "login");
  CHECK(first_of_nodelist("node[07-09,12],x1") == "node07");
  CHECK(first_of_nodelist("node[3,5]") == "node3");
  CHECK(first_of_nodelist("r[1-2]n[4-5],z") == "r1n4");
  CHECK(first_of_nodelist("node[4") == "");
  CHECK(first_of_nodelist("") == "");
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
