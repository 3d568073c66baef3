// SPDX-License-Identifier: Apache-2.0
//
// The two machines against each other, under as many seeds as CI has time for. One seed is looked
// at with tests/sim/main.cc, very many are run by scripts/soak.
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "tests/sim/minimise.h"
#include "tests/sim/world.h"

namespace muster::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 300;
#else
constexpr std::uint64_t kSeeds = 2000;
#endif

}  // namespace

TEST_CASE("both machines keep their promises under every seed") {
  std::map<std::string, std::uint64_t> tally;
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(SimOptions::from_seed(seed));
    world.run();
    for (const auto& [what, count] : world.checks.tally)
      tally[what] += count;
    if (!world.failure()) continue;
    ++failures;
    UNSCOPED_INFO(*world.failure()
                  << "\n  " << world.options.text() << "\n  again: build/dev/tests/sim "
                  << arguments(world.options) << " --minimise");
  }
  for (const auto& [what, count] : tally)
    UNSCOPED_INFO(what << ": " << count);
  CHECK(failures == 0);
  // A world in which nothing happens keeps every promise.
  for (const char* what : {"outcome succeeded",
                           "outcome failed",
                           "outcome stopped",
                           "outcome join_timeout",
                           "runs recovered",
                           "generations that outlived a server",
                           "restarts charged",
                           "restarts free",
                           "recoveries",
                           "nodes lost",
                           "nodes left",
                           "evictions",
                           "states adopted",
                           "finish 0",
                           "finish 3",
                           "finish 75",
                           "finish 76",
                           "finish 77",
                           "finish 127",
                           "finish 130",
                           "finish 139",
                           "finish 143",
                           "finish 78",
                           "outcome no_progress",
                           "nodes quarantined",
                           "workers that hang",
                           "nodes cut off",
                           "nodes cut off one way",
                           "journals without their tails",
                           "leaps of a node's clock",
                           "leaps of a server's clock",
                           "steps of the time of day"}) {
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
    World world(options);
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
    World first(SimOptions::from_seed(seed), Notes::kHash);
    World second(SimOptions::from_seed(seed), Notes::kTrace);
    first.run();
    second.run();
    CHECK(first.hash() == second.hash());
    CHECK(first.steps() == second.steps());
    CHECK_FALSE(second.trace().empty());
  }
}

}  // namespace muster::sim
