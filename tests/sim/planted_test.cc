// SPDX-License-Identifier: Apache-2.0
//
// The simulator's own test: each planted bug must be noticed, and as what it is.
#include <cstdlib>
#include <iostream>

#include <catch2/catch.hpp>

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

}  // namespace muster::sim
