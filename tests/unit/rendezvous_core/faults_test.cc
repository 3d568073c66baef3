// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/faults.h"

#include <set>
#include <vector>

#include <catch2/catch.hpp>

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

Fault fault(std::uint32_t index, FaultTarget on, Generation generation = 0,
            FaultAction action = FaultAction::kKill) {
  Fault made;
  made.index = index;
  made.action = action;
  made.when.generation = generation;
  made.on = std::move(on);
  return made;
}

FaultTarget rank(std::uint32_t number) {
  return {number, {}, {}, {}};
}
FaultTarget local_rank(std::uint32_t number) {
  return {{}, number, {}, {}};
}
FaultTarget node(const NodeName& name) {
  return {{}, {}, name, {}};
}

const MemberRanks kA{"a", 0, 0, 2};
const MemberRanks kB{"b", 1, 2, 3};
const std::vector<MemberRanks> kNodes{kA, kB};

std::vector<std::uint32_t> ranks(const std::vector<ArmedFault>& armed) {
  std::vector<std::uint32_t> hit;
  for (const ArmedFault& one : armed) {
    REQUIRE(one.rank.has_value());
    hit.push_back(*one.rank);
  }
  return hit;
}

}  // namespace

TEST_CASE("a rank's fault is armed on the node that has the rank, in its generation only") {
  const FaultBook book({7, {fault(0, rank(2)), fault(1, rank(0), 1), fault(2, rank(99))}});
  CHECK(book.arm(0, kNodes, kA).empty());
  CHECK(ranks(book.arm(0, kNodes, kB)) == std::vector<std::uint32_t>{2});
  CHECK(ranks(book.arm(1, kNodes, kA)) == std::vector<std::uint32_t>{0});
  CHECK(book.arm(1, kNodes, kB).empty());
}

TEST_CASE("a random victim is drawn by seed, fault and generation, the same for all nodes") {
  std::set<std::uint32_t> drawn;
  std::set<NodeName> nodes;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const FaultBook book({seed,
                          {fault(0, {{}, {}, {}, RandomVictim::kRank}),
                           fault(1, {{}, {}, {}, RandomVictim::kNode}, 0, FaultAction::kPreempt)}});
    std::vector<ArmedFault> all = book.arm(0, kNodes, kA);
    for (const ArmedFault& armed : book.arm(0, kNodes, kB)) {
      all.push_back(armed);
      if (!armed.rank) nodes.insert("b");
    }
    REQUIRE(all.size() == 2);  // each hits one, once
    for (const ArmedFault& armed : all) {
      if (armed.rank) drawn.insert(*armed.rank);
    }
    CHECK(book.arm(0, kNodes, kA).size() + book.arm(0, kNodes, kB).size() == 2);
  }
  CHECK(drawn == std::set<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(nodes.size() == 1);
}

TEST_CASE("a local rank's fault is armed on every node that has it, a node's on all its ranks") {
  const FaultBook book({7, {fault(0, local_rank(1)), fault(1, node("b"))}});
  CHECK(ranks(book.arm(0, kNodes, kA)) == std::vector<std::uint32_t>{1});
  CHECK(ranks(book.arm(0, kNodes, kB)) == std::vector<std::uint32_t>{3, 2, 3, 4});
  const FaultBook high({7, {fault(0, local_rank(2))}});
  CHECK(high.arm(0, kNodes, kA).empty());
}

TEST_CASE("kill-agent hits the node's agent, however the node is named") {
  const FaultBook book({7,
                        {fault(0, node("a"), 0, FaultAction::kKillAgent),
                         fault(1, rank(4), 0, FaultAction::kKillAgent)}});
  REQUIRE(book.arm(0, kNodes, kA).size() == 1);
  CHECK_FALSE(book.arm(0, kNodes, kA)[0].rank.has_value());
  REQUIRE(book.arm(0, kNodes, kB).size() == 1);
  CHECK(book.arm(0, kNodes, kB)[0].fault.index == 1);
}

TEST_CASE("a fault fires once; what never fired is known") {
  FaultBook book({7, {fault(3, rank(0)), fault(5, rank(1))}});
  CHECK(book.unfired().size() == 2);
  CHECK(book.fired(3) != nullptr);
  CHECK(book.fired(3) == nullptr);
  CHECK(book.fired(4) == nullptr);
  CHECK(ranks(book.arm(0, kNodes, kA)) == std::vector<std::uint32_t>{1});
  REQUIRE(book.unfired().size() == 1);
  CHECK(book.unfired()[0]->index == 5);
  CHECK(describe(rank(1)) == "rank 1");
  CHECK(describe(local_rank(0)) == "local rank 0");
  CHECK(describe(node("b")) == "node b");
}
