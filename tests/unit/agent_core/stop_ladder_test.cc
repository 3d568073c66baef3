// SPDX-License-Identifier: Apache-2.0
#include "agent/core/stop_ladder.h"

#include "tests/unit/agent_core/rig.h"

namespace muster::agent {
namespace {

using Orders = std::vector<StopLadder::Order>;

constexpr Instant at(Duration since) {
  return Instant{since};
}
const Orders kKill{{9, SignalScope::kGroup}, {9, SignalScope::kDescendants}};

}  // namespace

TEST_CASE("a ladder that was not begun wants nothing") {
  StopLadder ladder;
  CHECK(ladder.due(at(100s)).empty());
  CHECK_FALSE(ladder.next_deadline().has_value());
  CHECK_FALSE(ladder.signaled());
}

TEST_CASE("signal, grace, kill: each once") {
  StopLadder ladder;
  ladder.begin(15, SignalScope::kLeader, at(0s), at(30s));
  CHECK(ladder.due(at(0s)) == Orders{{15, SignalScope::kLeader}});
  CHECK(ladder.signaled());
  CHECK(ladder.due(at(29s)).empty());
  CHECK(ladder.next_deadline() == at(30s));
  CHECK(ladder.due(at(30s)) == kKill);
  CHECK(ladder.due(at(31s)).empty());
  CHECK_FALSE(ladder.next_deadline().has_value());
}

TEST_CASE("a delayed signal waits, and is not sent when the kill is due already") {
  StopLadder ladder;
  ladder.begin(15, SignalScope::kLeader, at(15s), at(30s));
  CHECK(ladder.due(at(14s)).empty());
  CHECK_FALSE(ladder.signaled());
  CHECK(ladder.next_deadline() == at(15s));
  SECTION("in time") {
    CHECK(ladder.due(at(15s)) == Orders{{15, SignalScope::kLeader}});
  }
  SECTION("the host slept") {
    CHECK(ladder.due(at(40s)) == kKill);
  }
}

TEST_CASE("when the leader ends, what it started gets the signal and the rest of the grace") {
  StopLadder ladder;
  ladder.begin(2, SignalScope::kLeader, at(0s), at(30s));
  CHECK(ladder.due(at(0s)) == Orders{{2, SignalScope::kLeader}});
  ladder.leader_ended();
  CHECK(ladder.due(at(1s)) == Orders{{2, SignalScope::kDescendants}});
  CHECK(ladder.due(at(2s)).empty());
  CHECK(ladder.due(at(30s)) == kKill);
}

TEST_CASE("the signal is not repeated, whether the leader lives or not") {
  StopLadder ladder;
  SECTION("leader lives") {
    ladder.begin(15, SignalScope::kGroup, at(0s), at(30s));
    CHECK(ladder.due(at(0s)) == Orders{{15, SignalScope::kGroup}});
    ladder.leader_ended();
    CHECK(ladder.due(at(1s)) == Orders{{15, SignalScope::kBeyondGroup}});
  }
  SECTION("leader ended before") {
    ladder.leader_ended();
    ladder.begin(15, SignalScope::kLeader, at(0s), at(30s));
    CHECK(ladder.due(at(0s)) == Orders{{15, SignalScope::kDescendants}});
  }
  CHECK(ladder.due(at(2s)).empty());
}

TEST_CASE("a ladder only ever gets shorter") {
  StopLadder ladder;
  ladder.begin(15, SignalScope::kLeader, at(0s), at(30s));
  CHECK(ladder.due(at(0s)).size() == 1);
  ladder.begin(2, SignalScope::kGroup, at(1s), at(60s));  // longer: no effect, no second signal
  CHECK(ladder.due(at(1s)).empty());
  CHECK(ladder.next_deadline() == at(30s));
  ladder.hasten(at(2s), at(4s));
  CHECK(ladder.next_deadline() == at(4s));
  ladder.kill(at(3s));
  CHECK(ladder.due(at(3s)) == kKill);
}

TEST_CASE("hastening sends a delayed signal at once") {
  StopLadder ladder;
  ladder.begin(15, SignalScope::kLeader, at(15s), at(30s));
  ladder.hasten(at(1s), at(3s));
  CHECK(ladder.due(at(1s)) == Orders{{15, SignalScope::kLeader}});
  CHECK(ladder.due(at(3s)) == kKill);
}

TEST_CASE("kill needs no beginning; a closed ladder is silent") {
  StopLadder ladder;
  ladder.kill(at(5s));
  SECTION("kill") {
    CHECK(ladder.due(at(5s)) == kKill);
    CHECK(ladder.signaled());
  }
  SECTION("closed") {
    ladder.close();
    CHECK(ladder.due(at(5s)).empty());
    CHECK_FALSE(ladder.next_deadline().has_value());
  }
}

}  // namespace muster::agent
