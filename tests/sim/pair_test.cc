// SPDX-License-Identifier: Apache-2.0
//
// The two machines against each other, under a few hundred seeds. To look at one seed:
//   MUSTER_SIM_SEED=17 build/dev/tests/sim_test      prints its whole trace
//   MUSTER_SIM_SEEDS=100000 build/dev/tests/sim_test  runs that many (a soak), from
//   MUSTER_SIM_FIRST on
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "tests/sim/world.h"

namespace muster::sim {
namespace {

constexpr std::uint64_t kSeeds = 400;

std::optional<std::uint64_t> number_from(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  return std::strtoull(value, nullptr, 10);
}

// Runs a seed again with its trace kept, and shows the end of it.
void show(std::uint64_t seed, std::size_t lines) {
  World world(SimOptions::from_seed(seed), true);
  world.run();
  const std::vector<std::string>& trace = world.trace();
  const std::size_t first = trace.size() > lines ? trace.size() - lines : 0;
  for (std::size_t i = first; i < trace.size(); ++i)
    std::cout << trace[i] << "\n";
  std::cout << world.options.text() << "\n" << world.failure().value_or("nothing is wrong") << "\n";
}

}  // namespace

TEST_CASE("both machines keep their promises under every seed") {
  if (const auto seed = number_from("MUSTER_SIM_SEED")) {
    show(*seed, 1000000);
    return;
  }
  const std::uint64_t seeds = number_from("MUSTER_SIM_SEEDS").value_or(kSeeds);
  std::map<std::string, std::uint64_t> tally;
  std::uint64_t failures = 0;
  const std::uint64_t first = number_from("MUSTER_SIM_FIRST").value_or(1);
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    World world(SimOptions::from_seed(seed), false);
    world.run();
    for (const auto& [what, count] : world.checks.tally)
      tally[what] += count;
    if (!world.failure()) continue;
    ++failures;
    UNSCOPED_INFO("MUSTER_SIM_SEED=" << seed << ": " << *world.failure() << "\n  "
                                     << world.options.text());
  }
  for (const auto& [what, count] : tally)
    UNSCOPED_INFO(what << ": " << count);
  CHECK(failures == 0);
  if (std::getenv("MUSTER_SIM_TALLY") != nullptr) {
    for (const auto& [what, count] : tally)
      std::cout << what << ": " << count << "\n";
  }
  // A world in which nothing happens keeps every promise.
  for (const char* what : {"outcome succeeded", "outcome failed",
                           "outcome stopped",   "outcome join_timeout",
                           "runs recovered",    "generations that outlived a server",
                           "restarts charged",  "restarts free",
                           "recoveries",        "nodes lost",
                           "nodes left",        "evictions",
                           "states adopted",    "finish 0",
                           "finish 3",          "finish 75",
                           "finish 76",         "finish 77",
                           "finish 127",        "finish 130",
                           "finish 139",        "finish 143"}) {
    INFO(what);
    CHECK(tally[what] > 0);
  }
}

// A healthy job whose server stands still, again and again, for longer than anyone is waited for.
TEST_CASE("a server that stands still loses nobody") {
  std::uint64_t nodes_lost = 0;
  std::uint64_t succeeded = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SimOptions options;
    options.seed = seed;
    options.min_nodes = options.max_nodes = options.agents = 2 + seed % 2;
    options.hosted = seed % 4 < 2;
    options.policy = SimOptions::from_seed(seed).policy;
    options.policy.server_grace = 30s;
    options.server_stalls = 0.08;
    options.longest_work = 25s;
    World world(options, false);
    world.run();
    INFO("seed " << seed << ": " << world.failure().value_or(""));
    CHECK_FALSE(world.failure());
    nodes_lost += world.checks.tally["nodes lost"];
    succeeded += world.checks.tally["outcome succeeded"];
  }
  CHECK(nodes_lost == 0);
  CHECK(succeeded == 40);
}

TEST_CASE("a seed replays exactly") {
  for (const std::uint64_t seed : {3U, 77U}) {
    World first(SimOptions::from_seed(seed), false);
    World second(SimOptions::from_seed(seed), true);
    first.run();
    second.run();
    CHECK(first.hash() == second.hash());
    CHECK(first.steps() == second.steps());
    CHECK_FALSE(second.trace().empty());
  }
}

}  // namespace muster::sim
