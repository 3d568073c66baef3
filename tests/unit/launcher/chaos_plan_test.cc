// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/chaos_plan.h"

#include <catch2/catch.hpp>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

std::string error_of(const std::string& json) {
  const absl::StatusOr<FaultPlan> plan = read_fault_plan(json);
  CHECK_FALSE(plan.ok());
  return plan.ok() ? "" : cat(plan.status().message());
}

}  // namespace

TEST_CASE("a bare list and an object with a seed") {
  const auto bare = parse_fault_plan(R"([{"do":"kill","when":{"step":130},"on":{"rank":1}}])");
  REQUIRE(bare.ok());
  CHECK(bare->seed == 0);
  REQUIRE(bare->faults.size() == 1);
  const Fault& fault = bare->faults[0];
  CHECK(fault.action == FaultAction::kKill);
  CHECK(fault.when.generation == 0);
  CHECK(fault.when.step == 130);
  CHECK(fault.on.rank == 1);
  CHECK(fault.signal == 9);
  CHECK(describe_fault(fault) == "0: SIGKILL to rank 1 at step 130 of generation 0");

  const auto object = parse_fault_plan(R"({"seed":7,"faults":[
    {"do":"stop","when":{"generation":2,"after":"1.5s"},"on":{"local_rank":0},"for":"3s"},
    {"do":"kill-agent","when":{"after":2},"on":{"node":"b"}},
    {"do":"kill","when":{"after":"1s"},"on":{"node":"b"},"signal":"TERM"}]})");
  REQUIRE(object.ok());
  CHECK(object->seed == 7);
  CHECK(object->faults[0].lasts == 3s);
  CHECK(object->faults[0].when.after == 1500ms);
  CHECK(object->faults[1].index == 1);
  CHECK(object->faults[2].signal == 15);
  CHECK(describe_fault(object->faults[1]) ==
        "1: SIGKILL to the agent of node b 2s into generation 0");
}

TEST_CASE("mistakes are named by their place") {
  CHECK(error_of("[") == "1:2: ends too early: a value or ']' is missing");
  CHECK(error_of("[]") == "/: names no fault");
  CHECK(error_of("{}") == "/: needs \"faults\": a list");
  CHECK(error_of(R"({"fault":[]})") == "/fault: unknown key; did you mean faults?");
  CHECK(error_of(R"({"faults":[3]})") == "/faults/0: must be an object");
  CHECK(error_of(R"([{"when":{},"on":{}}])") == "/0: needs \"do\": what is to be done");
  CHECK(error_of(R"([{"do":"kil"}])") == "/0/do: unknown action 'kil'; did you mean kill?");
  CHECK(error_of(R"([{"do":"oom"}])") == "/0/do: 'oom' is not in this version");
  CHECK(error_of(R"([{"do":"kill","on":{"rank":0}}])") ==
        "/0: needs \"when\": {\"step\"} or {\"after\"}");
  CHECK(error_of(R"([{"do":"kill","when":{"stepp":1},"on":{"rank":0}}])") ==
        "/0/when/stepp: unknown key; did you mean step?");
  CHECK(error_of(R"([{"do":"kill","when":{"line":"x"},"on":{"rank":0}}])") ==
        "/0/when/line: is not in this version");
  CHECK(error_of(R"([{"do":"kill","when":{},"on":{"rank":0}}])") ==
        "/0/when: needs \"step\" or \"after\"");
  CHECK(error_of(R"([{"do":"kill","when":{"step":1,"after":1},"on":{"rank":0}}])") ==
        "/0/when: has both \"step\" and \"after\"; one decides");
  CHECK(error_of(R"([{"do":"kill","when":{"step":-1},"on":{"rank":0}}])") ==
        "/0/when/step: must be a whole number from 0");
  CHECK(error_of(R"([{"do":"kill","when":{"after":"x"},"on":{"rank":0}}])").find("/0/when/after") ==
        0);
  CHECK(error_of(R"([{"do":"kill","when":{"step":1}}])").find("/0: needs \"on\"") == 0);
  CHECK(error_of(R"([{"do":"kill","when":{"step":1},"on":{}}])").find("/0/on: needs exactly") == 0);
  CHECK(error_of(R"([{"do":"kill","when":{"step":1},"on":{"rank":1,"node":"b"}}])")
            .find("/0/on: needs exactly") == 0);
  CHECK(error_of(R"([{"do":"kill","when":{"step":1},"on":{"rank":4294967296}}])")
            .find("/0/on/rank") == 0);
  CHECK(error_of(R"([{"do":"kill","when":{"step":1},"on":{"random":"job"}}])") ==
        "/0/on/random: must be one of \"rank\", \"node\"");
  CHECK(error_of(R"([{"do":"exit","code":256,"when":{"step":1},"on":{"rank":0}}])") ==
        "/0/code: must be an exit code, 0 to 255");
  CHECK(error_of(R"([{"do":"slow","when":{"step":1},"on":{"rank":0}}])") ==
        "/0/factor: must be how many times slower: above 1, at most 1000");
  CHECK(error_of(R"([{"do":"slow","factor":1,"when":{"step":1},"on":{"rank":0}}])")
            .find("/0/factor") == 0);
  CHECK(error_of(R"([{"do":"partition","when":{"after":1},"on":{"node":"b"}}])") ==
        "/0: partition needs \"for\": how long");
  CHECK(error_of(R"([{"do":"partition","for":1,"direction":"up","when":{"after":1},)"
                 R"("on":{"node":"b"}}])") ==
        "/0/direction: must be one of \"both\", \"in\", \"out\"");
  CHECK(error_of(R"([{"do":"delay","for":1,"when":{"after":1},"on":{"node":"b"}}])") ==
        "/0: delay needs \"by\": how much later");
  CHECK(error_of(R"([{"do":"preempt","for":1,"when":{"after":1},"on":{"node":"b"}}])") ==
        "/0/for: unknown key");
  CHECK(
      error_of(R"([{"do":"preempt","when":{"after":1},"on":{"local_rank":0}}])") ==
      "/0/on/local_rank: does not name one agent; preempt takes \"node\", \"rank\" or \"random\"");
  CHECK(error_of(R"([{"do":"kill-agent","when":{"step":1},"on":{"local_rank":1}}])")
            .find("/0/on/local_rank") == 0);
  CHECK(error_of(R"([{"do":"kill","when":{"step":1},"on":{"rank":1},"signal":"X"}])")
            .find("/0/signal") == 0);
  CHECK(error_of(R"([{"do":"stop","when":{"step":1},"on":{"rank":1},"signal":"9"}])") ==
        "/0/signal: unknown key");
  CHECK(error_of(R"([{"do":"kill","when":{"step":1},"on":{"rank":1},"a/b~":1}])") ==
        "/0/a~1b~0: unknown key");
  CHECK(error_of("/no/such/plan.json") == "/no/such/plan.json: No such file or directory");
  CHECK(error_of("/") == "/: is a directory, not a file");
}

TEST_CASE("each action in words") {
  const auto words = [](const std::string& fault) {
    return describe_fault(parse_fault_plan("[" + fault + "]")->faults[0]);
  };
  CHECK(words(R"({"do":"exit","code":7,"when":{"step":3},"on":{"random":"rank"}})") ==
        "0: exit 7 of a random rank at step 3 of generation 0");
  CHECK(words(R"({"do":"slow","factor":2.5,"for":"9s","when":{"after":"1s"},"on":{"rank":1}})") ==
        "0: slowness, 2.5 times, of rank 1 1s into generation 0, for 9s");
  CHECK(words(R"({"do":"preempt","when":{"after":"1s"},"on":{"random":"node"}})") ==
        "0: SIGTERM to the agent of a random node 1s into generation 0");
  CHECK(words(R"({"do":"partition","for":"3s","when":{"after":"1s"},"on":{"node":"b"}})") ==
        "0: no traffic between the server and the agent of node b 1s into generation 0, for 3s");
  CHECK(
      words(R"({"do":"partition","direction":"out","for":3,"when":{"after":1},"on":{"rank":0}})") ==
      "0: nothing reaches the server from the agent of rank 0 1s into generation 0, for 3s");
  CHECK(
      words(R"({"do":"delay","by":"80ms","for":3,"when":{"after":1},"on":{"node":"b"}})") ==
      "0: a delay of 80ms between the server and the agent of node b 1s into generation 0, for 3s");
  CHECK(words(R"({"do":"kill","when":{"after":1},"on":{"random":"node"}})") ==
        "0: SIGKILL to every rank of a random node 1s into generation 0");
}

TEST_CASE("faults that can never fire are refused where that is sure") {
  const auto plan_of = [](const std::string& json) { return *parse_fault_plan(json); };
  const FaultPlan rank = plan_of(R"([{"do":"kill","when":{"step":1},"on":{"rank":2}}])");
  const FaultPlan local = plan_of(R"([{"do":"kill","when":{"step":1},"on":{"local_rank":2}}])");
  const FaultPlan node = plan_of(R"([{"do":"kill","when":{"step":1},"on":{"node":"b"}}])");
  const PlanBounds one{.max_nodes = 1, .slots = 2, .node = "a"};
  CHECK(check_fault_plan(rank, one).message() ==
        "fault 0 can never fire: there is no rank 2 among 2");
  CHECK_FALSE(check_fault_plan(local, one).ok());
  CHECK_FALSE(check_fault_plan(node, one).ok());
  const PlanBounds two{.max_nodes = 2, .slots = 2, .node = "a"};
  for (const FaultPlan& plan : {rank, local, node})
    CHECK(check_fault_plan(plan, two).ok());
}

TEST_CASE("a fault of a generation past the restart budget is refused where that is the last") {
  const FaultPlan plan =
      *parse_fault_plan(R"([{"do":"kill","when":{"generation":1,"after":"0s"},"on":{"rank":0}},)"
                        R"({"do":"kill","when":{"generation":4,"after":"0s"},"on":{"rank":0}}])");
  PlanBounds bounds{.max_nodes = 1, .slots = 1, .node = "a", .last_generation = 3};
  CHECK(check_fault_plan(plan, bounds).message() ==
        "fault 1 can never fire: --max-restarts allows generations up to 3, not 4");
  bounds.last_generation = 4;
  CHECK(check_fault_plan(plan, bounds).ok());
  bounds.last_generation.reset();
  CHECK(check_fault_plan(plan, bounds).ok());
}

}  // namespace muster::launcher
