// SPDX-License-Identifier: Apache-2.0
//
// Thousands of random happenings under many seeds; the judge holds the machine to the invariants
// of rendezvous.h after each, and once everybody behaves the job must end.
#include <catch2/catch.hpp>

#include "tests/unit/rendezvous_core/world.h"

using muster::rendezvous::test::World;

TEST_CASE("random walks keep every invariant, and end once all behave") {
  constexpr std::uint64_t kSeeds = 1500;
  int commits = 0;
  int outcomes = 0;
  int adoptions = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    world.stir(300);
    const bool ended = world.calm_down();
    INFO("seed " << seed);
    for (const std::string& broken : world.judge().broken)
      FAIL_CHECK(broken);
    CHECK(ended);
    commits += world.judge().commits;
    outcomes += world.judge().outcomes;
    adoptions += world.judge().adoptions;
  }
  // The walks go somewhere: a world in which nothing happens keeps every invariant too.
  CHECK(commits > 1000);
  CHECK(outcomes > 1500);
  CHECK(adoptions > 100);
}

TEST_CASE("one seed, one history") {
  for (const std::uint64_t seed : {3U, 17U, 99U}) {
    World first(seed);
    World second(seed);
    first.stir(500);
    second.stir(500);
    CHECK(first.trace() == second.trace());
  }
}
