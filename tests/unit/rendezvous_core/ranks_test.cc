// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/ranks.h"

#include <algorithm>
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "proto/base/rng.h"

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

// The second version: one place at a time, by asking for each who has the best claim to it.
std::vector<NodeName> naive_order(std::vector<Candidate> left) {
  std::vector<NodeName> placed;
  const auto take = [&](std::size_t index) {
    placed.push_back(left[index].name);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(index));
  };
  for (std::uint32_t place = 0; !left.empty(); ++place) {
    std::optional<std::size_t> asked;
    std::optional<std::size_t> stayer;
    std::optional<std::size_t> newcomer;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i].node_rank) {
        if (left[i].node_rank == place) asked = i;
      } else if (!left[i].previous) {
        if (!newcomer || natural_less(left[i].host, left[*newcomer].host)) newcomer = i;
      } else if (*left[i].previous <= place) {
        if (!stayer || *left[i].previous < *left[*stayer].previous) stayer = i;
      }
    }
    if (!asked) asked = stayer ? stayer : newcomer;
    if (asked) take(*asked);
  }
  return placed;
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
  for (int round = 0; round < 3000; ++round) {
    std::vector<Candidate> candidates;
    std::vector<std::uint32_t> places;  // of the generation before
    for (std::uint32_t i = 0; i < 16; ++i)
      places.push_back(i);
    std::vector<std::uint32_t> asked = places;  // explicit ones may be the places of others
    const std::size_t count = 1 + rng.below(9);
    const std::uint64_t explicit_share = rng.below(3) * 40;
    for (std::size_t i = 0; i < count; ++i) {
      Candidate candidate = node("gpu-" + std::to_string(i * 7 % 13));
      candidate.slots = static_cast<std::uint32_t>(1 + rng.below(8));
      const auto draw = [&](std::vector<std::uint32_t>& from) {
        const auto pick = static_cast<std::ptrdiff_t>(rng.below(from.size()));
        const std::uint32_t drawn = from[static_cast<std::size_t>(pick)];
        from.erase(from.begin() + pick);
        return drawn;
      };
      if (rng.below(100) < explicit_share) candidate.node_rank = draw(asked);
      if (rng.below(2) == 0) candidate.previous = draw(places);
      candidates.push_back(candidate);
    }
    const std::vector<MemberRanks> ranks = assign_ranks(candidates);
    REQUIRE(order(candidates) == naive_order(candidates));
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      REQUIRE(ranks[i].group_rank == i);
      REQUIRE(ranks[i].first_rank == next);
      next += ranks[i].count;
    }
    // Rank 0's node stays rank 0 unless somebody asked for it.
    for (const Candidate& candidate : candidates) {
      const bool stays = !candidate.node_rank && candidate.previous == 0U;
      const bool free = std::none_of(candidates.begin(), candidates.end(),
                                     [](const Candidate& other) { return other.node_rank == 0U; });
      if (stays && free) REQUIRE(ranks.front().node == candidate.name);
    }
    std::reverse(candidates.begin(), candidates.end());
    REQUIRE(assign_ranks(candidates) == ranks);  // the order of arrival decides nothing
  }
}
