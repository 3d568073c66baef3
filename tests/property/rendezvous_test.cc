// SPDX-License-Identifier: Apache-2.0
//
// Ranks, windows and back-off against naive statements of what they should be.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/rendezvous/core/budget.h"
#include "launcher/rendezvous/core/ranks.h"
#include "proto/base/rng.h"
#include "tests/sim/naive.h"

namespace muster::rendezvous {
namespace {

std::string random_name(Rng& rng) {
  static constexpr std::string_view kLetters = "ab-019.";
  std::string name;
  for (std::uint64_t length = 1 + rng.below(6); length > 0; --length)
    name += kLetters[rng.below(kLetters.size())];
  return name;
}

// Nobody of the generation before; names are counted from `first`.
std::vector<Candidate> random_newcomers(Rng& rng, std::size_t count, std::size_t first) {
  std::vector<Candidate> nodes;
  for (std::size_t i = 0; i < count; ++i) {
    Candidate node;
    node.name = random_name(rng) + "/" + std::to_string(first + i);
    node.host = random_name(rng);
    node.addr = "10.0.0." + std::to_string(rng.below(20));
    node.slots = static_cast<std::uint32_t>(1 + rng.below(8));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

void shuffle(std::vector<Candidate>& nodes, Rng& rng) {
  for (std::size_t i = nodes.size(); i > 1; --i)
    std::swap(nodes[i - 1], nodes[rng.below(i)]);
}

}  // namespace

TEST_CASE("natural order agrees with padded numbers") {
  Rng rng(21);
  for (int round = 0; round < 20000; ++round) {
    const std::string a = random_name(rng);
    const std::string b = random_name(rng);
    INFO(a << " and " << b);
    REQUIRE(natural_less(a, b) == sim::naive_natural_less(a, b));
  }
}

TEST_CASE("ranks agree with the naive assignment") {
  Rng rng(22);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Candidate> candidates;
    const auto count = static_cast<std::uint32_t>(1 + rng.below(12));
    for (std::uint32_t i = 0; i < count; ++i) {
      Candidate candidate;
      candidate.name = random_name(rng) + "/" + std::to_string(i);
      candidate.host = random_name(rng);
      candidate.addr = "10.0.0." + std::to_string(rng.below(20));
      candidate.slots = static_cast<std::uint32_t>(1 + rng.below(8));
      const std::uint32_t place = (i * 5 + 3) % 13;
      const std::uint64_t kind = rng.below(3);
      if (kind == 0) candidate.node_rank = place;
      if (kind == 1) candidate.previous = place;
      if (rng.below(2) == 0) candidate.index = static_cast<std::uint32_t>(rng.below(6));
      candidates.push_back(std::move(candidate));
    }
    REQUIRE(assign_ranks(candidates) == sim::naive_ranks(candidates));
  }
}

TEST_CASE("ranks are 0..n-1, each once, whatever the order in which the candidates are looked at") {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Rng rng(seed);
    std::vector<Candidate> candidates = random_newcomers(rng, 1 + rng.below(20), 0);
    const std::vector<MemberRanks> ranks = assign_ranks(candidates);
    INFO("seed " << seed);
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      REQUIRE(ranks[i].group_rank == i);
      REQUIRE(ranks[i].first_rank == next);
      next += ranks[i].count;
    }
    shuffle(candidates, rng);
    REQUIRE(assign_ranks(candidates) == ranks);
  }
}

TEST_CASE("who stays keeps its place below the lowest one that nobody fills, and its order above") {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Rng rng(seed);
    const std::vector<Candidate> before = random_newcomers(rng, 2 + rng.below(15), 0);
    std::map<NodeName, std::uint32_t> places;
    for (const MemberRanks& member : assign_ranks(before))
      places[member.node] = member.group_rank;
    std::vector<Candidate> after;
    std::set<std::uint32_t> gaps;
    for (Candidate node : before) {
      node.previous = places.at(node.name);
      if (rng.below(3) == 0) {
        gaps.insert(*node.previous);
      } else {
        after.push_back(std::move(node));
      }
    }
    const std::size_t come = rng.below(gaps.size() + 1);
    for (Candidate& node : random_newcomers(rng, come, before.size()))
      after.push_back(std::move(node));
    shuffle(after, rng);
    for (std::size_t filled = 0; filled < come; ++filled)
      gaps.erase(gaps.begin());
    const std::uint32_t lowest_gap = gaps.empty() ? UINT32_MAX : *gaps.begin();
    INFO("seed " << seed << ", lowest gap " << lowest_gap);
    std::uint32_t last = 0;
    for (const MemberRanks& member : assign_ranks(after)) {
      const auto place = places.find(member.node);
      if (place == places.end()) continue;
      if (place->second < lowest_gap) REQUIRE(member.group_rank == place->second);
      REQUIRE(place->second >= last);
      last = place->second;
    }
  }
}

TEST_CASE("no window of job time ever holds more charges than allowed, and none is refused early") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    JobPolicy policy;
    policy.max_restarts = static_cast<std::uint32_t>(rng.below(5));
    if (rng.below(3) > 0) policy.max_restarts_window = 1s * (1 + rng.below(60));
    Budget budget(policy);
    std::vector<Instant> charges;
    Instant now;
    for (int failure = 0; failure < 40; ++failure) {
      // Half of the time in whole seconds: then some are charged at the very edge of the window.
      now = now + (rng.below(2) == 0 ? 1ms * rng.below(20000) : Duration(1s) * rng.below(20));
      const auto recent = std::count_if(charges.begin(), charges.end(), [&](Instant at) {
        return !policy.max_restarts_window || now - at <= *policy.max_restarts_window;
      });
      const Charge charge = budget.worker_failed(now, rng);
      INFO("seed " << seed << ", failure " << failure);
      REQUIRE(charge.allowed == (static_cast<std::uint32_t>(recent) < policy.max_restarts));
      if (charge.charged) charges.push_back(now);
      REQUIRE(budget.used() == charges.size());
    }
  }
}

TEST_CASE("back-off doubles from a second to its maximum and forgets with progress") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    JobPolicy policy;
    policy.max_restarts = 1000;
    policy.restart_backoff_max = 1ms * rng.below(100000);
    Budget budget(policy);
    Duration full{0};
    for (int failure = 0; failure < 60; ++failure) {
      if (rng.below(8) == 0) {
        budget.progressed();
        full = Duration{0};
      }
      const Duration delay = budget.worker_failed({}, rng).delay;
      INFO("seed " << seed << ", failure " << failure);
      REQUIRE(delay >= full * 8 / 10 - 1ms);
      REQUIRE(delay <= full * 12 / 10);
      full = std::min(full == Duration{0} ? Duration(1s) : full * 2, policy.restart_backoff_max);
    }
  }
}

}  // namespace muster::rendezvous
