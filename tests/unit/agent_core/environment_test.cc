// SPDX-License-Identifier: Apache-2.0
#include "agent/core/environment.h"

#include "tests/unit/agent_core/rig.h"

namespace muster::agent {
namespace {

// Two nodes, three workers on the first and two here.
Assignment two_nodes() {
  Assignment assignment;
  assignment.generation = 4;
  assignment.world_size = 5;
  assignment.members = {{"a", 0, 0, 3}, {"b", 1, 3, 2}};
  assignment.group_rank = 1;
  assignment.master_addr = "10.0.0.1";
  assignment.restarts_used = 2;
  assignment.max_restarts = 5;
  assignment.reason = FormReason::kNodeLost;
  return assignment;
}

AgentConfig on_b() {
  AgentConfig config = test_config();
  config.node.name = "b";
  return config;
}

Environment of(const AgentConfig& config, std::uint32_t local_rank = 1) {
  return worker_environment(config, "20260101T000000-abcd", two_nodes(), 20123, local_rank);
}

}  // namespace

TEST_CASE("a worker gets torchrun's variables and ours, and nothing else is added") {
  AgentConfig config = on_b();
  config.environment = {};
  config.store_endpoint = "127.0.0.1:4000";
  config.store_token_file = "/run/token";
  const Environment expected{
      {"RANK", "4"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "5"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_RANK", "4"},
      {"ROLE_WORLD_SIZE", "5"},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "20123"},
      {"TORCHELASTIC_RUN_ID", "j"},
      {"TORCHELASTIC_MAX_RESTARTS", "5"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"PYTHONUNBUFFERED", "1"},
      {"OMP_NUM_THREADS", "1"},
      {"MUSTER_JOB_ID", "j"},
      {"MUSTER_RUN_ID", "20260101T000000-abcd"},
      {"MUSTER_NODE", "b"},
      {"MUSTER_GENERATION", "4"},
      {"MUSTER_RESTART_REASON", "node_lost"},
      {"MUSTER_STORE", "127.0.0.1:4000"},
      {"MUSTER_STORE_TOKEN_FILE", "/run/token"},
  };
  CHECK(of(config) == expected);
}

TEST_CASE("inherited values never leak into a worker's identity") {
  AgentConfig config = on_b();
  for (const auto& [name, value] : of(config)) {
    if (name != "PATH" && name != "OMP_NUM_THREADS" && name != "PYTHONUNBUFFERED" &&
        name != "TORCH_NCCL_ASYNC_ERROR_HANDLING") {
      config.environment[name] = "inherited";
    }
  }
  config.environment["TORCHELASTIC_ERROR_FILE"] = "/agents/own.json";
  for (const std::string_view name : kVariablesOfWorkers)
    config.environment[std::string(name)] = "inherited";
  for (const auto& [name, value] : of(config)) {
    INFO(name);
    CHECK(value != "inherited");
    CHECK(name != "TORCHELASTIC_ERROR_FILE");
    CHECK(name != "MUSTER_STOP_FILE");
    CHECK(name != "MUSTER_STORE");  // none was given
  }
}

TEST_CASE("what the user set stays: threads, NCCL, buffering, PET_, MUSTER_ of their own") {
  AgentConfig config = on_b();
  config.environment = {{"OMP_NUM_THREADS", "8"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"},
                        {"PYTHONUNBUFFERED", ""}, {"PET_NNODES", "2"},
                        {"NOT_MUSTER_X", "y"},    {"EMPTY", ""},
                        {"MUSTER_FOO", "z"},      {"MUSTER_STORES", "s"}};
  const Environment env = of(config);
  for (const auto& [name, value] : config.environment) {
    INFO(name);
    REQUIRE(env.contains(name));
    CHECK(env.at(name) == value);
  }
}

TEST_CASE("one worker keeps OMP_NUM_THREADS unset; an empty value counts as set") {
  AgentConfig config = on_b();
  config.environment = {};
  CHECK(limits_omp_threads(config, 2));
  CHECK_FALSE(limits_omp_threads(config, 1));
  Assignment alone = two_nodes();
  alone.members[1].count = 1;
  CHECK_FALSE(worker_environment(config, "r", alone, 1, 0).contains("OMP_NUM_THREADS"));
  config.environment = {{"OMP_NUM_THREADS", ""}};
  CHECK_FALSE(limits_omp_threads(config, 2));
}

TEST_CASE("the variables of an outer MPI step go only where the scheduler is one") {
  AgentConfig config = on_b();
  config.environment = {{"PMI_RANK", "0"},
                        {"PMIX_RANK", "0"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_MCA_btl", "tcp"},
                        {"PMIXED", "z"}};
  CHECK(of(config).contains("PMI_RANK"));
  config.scheduler_strips_pmi = true;
  const Environment env = of(config);
  CHECK_FALSE(env.contains("PMI_RANK"));
  CHECK_FALSE(env.contains("PMIX_RANK"));
  CHECK_FALSE(env.contains("OMPI_COMM_WORLD_SIZE"));
  CHECK(env.contains("OMPI_MCA_btl"));
  CHECK(env.contains("PMIXED"));
}

TEST_CASE("arguments reach the worker byte for byte but for ${local_rank}") {
  AgentConfig config = on_b();
  config.argv = {"/bin/${local_rank}", "kill -9 $$",   "a${local_rank}b${local_rank}",
                 "$local_rank",        "${local_rank", ""};
  CHECK(worker_argv(config, 11) == std::vector<std::string>{"/bin/${local_rank}", "kill -9 $$",
                                                            "a11b11", "$local_rank", "${local_rank",
                                                            ""});
  config.substitute_local_rank = false;
  CHECK(worker_argv(config, 11) == config.argv);
  config.pass_local_rank = true;
  CHECK(worker_argv(config, 3).back() == "--local-rank=3");
}

TEST_CASE("plans cover the node's ranks, each with the faults that hit it") {
  Assignment assignment = two_nodes();
  ArmedFault on_rank;
  on_rank.fault.index = 6;
  on_rank.rank = 4;
  ArmedFault on_agent;
  on_agent.fault.action = FaultAction::kKillAgent;
  assignment.faults = {on_rank, on_agent};
  const std::vector<WorkerPlan> plans = plan_workers(on_b(), "r", assignment, 1);
  REQUIRE(plans.size() == 2);
  CHECK(plans[0].rank == 3);
  CHECK(plans[1].rank == 4);
  CHECK(plans[0].faults.empty());
  REQUIRE(plans[1].faults.size() == 1);
  CHECK(plans[1].faults[0].fault.index == 6);
  CHECK(plans[1].argv == std::vector<std::string>{"/bin/train", "--rank", "1"});
  CHECK(plans[0].environment.at("LOCAL_RANK") == "0");
}

TEST_CASE("a worker with a device of its own is local rank 0 of it") {
  AgentConfig config = on_b();
  config.argv = {"train", "${local_rank}"};
  config.pass_local_rank = true;
  config.environment["CUDA_VISIBLE_DEVICES"] = "3,5";
  config.own_devices = {"3", "5"};
  const Environment env = of(config);
  CHECK(env.at("LOCAL_RANK") == "0");
  CHECK(env.at("CUDA_VISIBLE_DEVICES") == "5");
  CHECK(env.at("RANK") == "4");
  CHECK(worker_argv(config, 1) == std::vector<std::string>{"train", "1", "--local-rank=0"});
}

}  // namespace muster::agent
