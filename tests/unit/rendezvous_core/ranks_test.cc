// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/ranks.h"

#include <algorithm>
#include <numeric>

#include <catch2/catch.hpp>

#include "proto/base/rng.h"
#include "tests/sim/naive.h"

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

std::vector<NodeName> order(const std::vector<Candidate>& candidates) {
  std::vector<NodeName> names;
  for (const MemberRanks& member : assign_ranks(candidates))
    names.push_back(member.node);
  return names;
}

Candidate node(const std::string& name, std::optional<std::uint32_t> previous = {},
               std::optional<std::uint32_t> node_rank = {}) {
  return {name, name, "10.0.0.1", 1, node_rank, previous};
}

std::uint32_t place_of(const std::vector<MemberRanks>& ranks, const NodeName& name) {
  for (const MemberRanks& one : ranks)
    if (one.node == name) return one.group_rank;
  FAIL("no rank for " << name);
  return 0;
}

// Contiguous; who stays keeps its order, and so do node ranks; rank 0's node keeps it unless
// somebody asked for 0, or for less than it did itself.
void check_ranks(const std::vector<Candidate>& cluster, const std::vector<MemberRanks>& ranks) {
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    REQUIRE(ranks[i].group_rank == i);
    REQUIRE(ranks[i].first_rank == next);
    next += ranks[i].count;
  }
  for (const Candidate& a : cluster) {
    for (const Candidate& b : cluster) {
      const bool before = place_of(ranks, a.name) < place_of(ranks, b.name);
      if (a.previous && b.previous && *a.previous < *b.previous) REQUIRE(before);
      if (a.node_rank && b.node_rank && *a.node_rank < *b.node_rank) REQUIRE(before);
    }
    if (a.previous != 0U || place_of(ranks, a.name) == 0) continue;
    const bool outdone = std::any_of(cluster.begin(), cluster.end(), [&](const Candidate& b) {
      const bool asked_less = a.node_rank && b.node_rank && *b.node_rank < *a.node_rank;
      return !b.previous && (b.node_rank == 0U || asked_less);
    });
    REQUIRE(outdone);
  }
}

}  // namespace

TEST_CASE("host names compare as people read them") {
  CHECK(natural_less("gpu-2", "gpu-10"));
  CHECK_FALSE(natural_less("gpu-10", "gpu-2"));
  CHECK(natural_less("gpu-2-ib1", "gpu-2-ib10"));
  CHECK(natural_less("a", "b"));
  CHECK(natural_less("node", "node1"));
  CHECK(natural_less("node7", "node66"));
  CHECK(natural_less("n99999999999999999999998", "n99999999999999999999999"));
  CHECK_FALSE(natural_less("x", "x"));
  CHECK(natural_less("n01", "n1") != natural_less("n1", "n01"));
}

TEST_CASE("natural order is a strict weak order") {
  const std::vector<std::string> names{"",    "0",  "00",  "1",    "01",  "a",   "a0",
                                       "a00", "a1", "a10", "a2b",  "a2",  "10a", "b",
                                       "-1",  "1-", "1.2", "1.10", "a-1", "a-01"};
  for (const auto& a : names) {
    CHECK_FALSE(natural_less(a, a));
    for (const auto& b : names) {
      CHECK((natural_less(a, b) != natural_less(b, a) || a == b));
      for (const auto& c : names) {
        if (natural_less(a, b) && natural_less(b, c)) CHECK(natural_less(a, c));
      }
    }
  }
}

TEST_CASE("ranks follow node ranks, then old places, then names") {
  CHECK(order({node("gpu-10"), node("gpu-2")}) == std::vector<NodeName>{"gpu-2", "gpu-10"});
  CHECK(order({node("a", {}, 1), node("b", {}, 0)}) == std::vector<NodeName>{"b", "a"});
  // A node rank is a place: the others fill those before it, and what is empty closes up.
  CHECK(order({node("a"), node("z", {}, 5)}) == std::vector<NodeName>{"a", "z"});
  CHECK(order({node("a"), node("b"), node("z", {}, 1)}) == std::vector<NodeName>{"a", "z", "b"});
  // Once it is there it stays like the others, wherever that is now.
  CHECK(order({node("z", 0, 2), node("c", 1)}) == std::vector<NodeName>{"z", "c"});
  CHECK(order({node("z", 0, 1), node("n")}) == std::vector<NodeName>{"z", "n"});
  // The order of node ranks comes first among those who gave one.
  CHECK(order({node("z", 0, 1), node("y", 1, 2), node("x", {}, 0)}) ==
        std::vector<NodeName>{"x", "z", "y"});
  CHECK(order({node("z", 0, 1), node("c", 1), node("y", 2, 7), node("x", {}, 5)}) ==
        std::vector<NodeName>{"z", "c", "x", "y"});
  // Rank 0's node keeps it from all who did not ask for 0.
  CHECK(order({node("y", {}, 1), node("b", 0), node("z", {}, 3)}) ==
        std::vector<NodeName>{"b", "y", "z"});
  CHECK(order({node("b", 0), node("c", 1), node("z", {}, 0)}) ==
        std::vector<NodeName>{"z", "b", "c"});
  // Rank 0's node stays first although another name is smaller.
  CHECK(order({node("b", 0), node("a", 1)}) == std::vector<NodeName>{"b", "a"});
  // A newcomer takes the place that was vacated.
  CHECK(order({node("a", 0), node("c", 2), node("new")}) == std::vector<NodeName>{"a", "new", "c"});
  // Nobody takes it: those behind move up.
  CHECK(order({node("a", 0), node("c", 2)}) == std::vector<NodeName>{"a", "c"});
  // More newcomers than places: the rest go behind.
  CHECK(order({node("a", 0), node("c", 2), node("n2"), node("n10")}) ==
        std::vector<NodeName>{"a", "n2", "c", "n10"});
}

TEST_CASE("a scheduler's numbers order the newcomers") {
  const auto numbered = [](const std::string& name, std::uint32_t index) {
    Candidate candidate = node(name);
    candidate.index = index;
    return candidate;
  };
  CHECK(order({numbered("a", 2), numbered("b", 10), numbered("c", 1)}) ==
        std::vector<NodeName>{"c", "a", "b"});
  // Round explicit ranks, before those without a number; who stays keeps its place.
  CHECK(order({numbered("a", 1), node("b"), node("z", {}, 1), numbered("c", 0)}) ==
        std::vector<NodeName>{"c", "z", "a", "b"});
  CHECK(order({numbered("a", 0), node("b", 0)}) == std::vector<NodeName>{"b", "a"});
  // The same number twice, which no scheduler should give: by name.
  CHECK(order({numbered("b", 1), numbered("a", 1)}) == std::vector<NodeName>{"a", "b"});
}

TEST_CASE("equal hosts are told apart by address and name") {
  Candidate a{"h/1", "h", "10.0.0.10", 1, {}, {}};
  Candidate b{"h/0", "h", "10.0.0.9", 1, {}, {}};
  CHECK(order({a, b}) == std::vector<NodeName>{"h/0", "h/1"});
  b.addr = a.addr;
  CHECK(order({a, b}) == std::vector<NodeName>{"h/0", "h/1"});
}

TEST_CASE("ranks agree with a naive second version on random clusters") {
  Rng rng(11);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::uint32_t> asked(16);
    std::iota(asked.begin(), asked.end(), 0U);
    const auto draw = [&](std::vector<std::uint32_t>& from) {
      const auto pick = static_cast<std::ptrdiff_t>(rng.below(from.size()));
      const std::uint32_t drawn = from[static_cast<std::size_t>(pick)];
      from.erase(from.begin() + pick);
      return drawn;
    };
    const std::uint64_t explicit_share = rng.below(3) * 40;
    std::vector<Candidate> cluster;  // everybody there ever was, as of the last generation
    std::size_t named = 0;
    for (int generation = 0; generation < 4; ++generation) {
      std::erase_if(cluster, [&](const Candidate&) { return rng.below(4) == 0; });
      const std::size_t more = cluster.empty() ? 1 : rng.below(4);
      for (std::size_t i = 0; i < more && !asked.empty(); ++i) {
        Candidate candidate = node("gpu-" + std::to_string(named++ * 7 % 31));
        candidate.slots = static_cast<std::uint32_t>(1 + rng.below(8));
        if (rng.below(100) < explicit_share) candidate.node_rank = draw(asked);
        cluster.push_back(candidate);
      }
      const std::vector<MemberRanks> ranks = assign_ranks(cluster);
      REQUIRE(ranks == sim::naive_ranks(cluster));
      check_ranks(cluster, ranks);
      std::reverse(cluster.begin(), cluster.end());
      REQUIRE(assign_ranks(cluster) == ranks);  // the order of arrival decides nothing
      for (Candidate& candidate : cluster)
        candidate.previous = place_of(ranks, candidate.name);
      REQUIRE(assign_ranks(cluster) == ranks);  // with the same nodes nothing changes
    }
  }
}
