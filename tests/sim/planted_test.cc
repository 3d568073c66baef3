// SPDX-License-Identifier: Apache-2.0
//
// The simulator's own test: each planted bug must be noticed, and as what it is.
#include <cstdlib>
#include <iostream>

#include <catch2/catch.hpp>

#include "tests/sim/minimise.h"
#include "tests/sim/world.h"

namespace muster::sim {
namespace {

constexpr std::uint64_t kSeeds = 10000;

// The seed under which `bug` is noticed first.
std::optional<std::uint64_t> noticed(const Bug& bug) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SimOptions options = SimOptions::from_seed(seed);
    options.planted = bug.name;
    World world(options);
    world.run();
    if (world.failure() && world.failure()->starts_with(bug.breaks)) return seed;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("every planted bug is noticed") {
  for (const Bug& bug : bugs()) {
    const std::optional<std::uint64_t> seed = noticed(bug);
    INFO(bug.name << " (" << bug.breaks << ")");
    CHECK(seed.has_value());
    if (std::getenv("MUSTER_SIM_TALLY") != nullptr) {
      std::cout << bug.name << ": seed " << seed.value_or(0) << "\n";
    }
  }
}

TEST_CASE("a world that fails is made small, and fails in the same way") {
  for (const char* name : {"leave-unheard", "departed-are-remembered", "wrong-reason"}) {
    const Bug& bug = *find_bug(name);
    SimOptions options = SimOptions::from_seed(noticed(bug).value());
    options.planted = name;
    World whole(options);
    whole.run();
    const SimOptions small = minimise(options);
    World world(small);
    world.run();
    INFO(arguments(small) << ": " << world.failure().value_or("nothing is wrong"));
    REQUIRE(world.failure());
    CHECK(kind_of(*world.failure()) == kind_of(*whole.failure()));
    CHECK(small.agents <= 4);
    CHECK(world.steps() <= 300);
  }
}

}  // namespace muster::sim
