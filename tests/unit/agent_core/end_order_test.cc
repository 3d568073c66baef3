// SPDX-License-Identifier: Apache-2.0
#include "agent/core/end_order.h"

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

using Pids = std::vector<std::int64_t>;
constexpr auto kCrash = Evidence::kCrash;
constexpr auto kExit = Evidence::kExit;
constexpr auto kReaction = Evidence::kReaction;

struct Fixture {
  Instant now{100s};
  EndOrder order;

  SeenEnd end(std::int64_t pid, std::optional<Evidence> evidence,
              std::optional<Duration> spoke_ago = std::nullopt, Duration failing = 0s) const {
    SeenEnd seen{pid, evidence, now - failing, now, std::nullopt};
    if (spoke_ago) seen.spoke = now - *spoke_ago;
    return seen;
  }
  StillAlive silent(std::int64_t pid) const { return {pid, false, std::nullopt, std::nullopt}; }
  StillAlive ending(std::int64_t pid) const { return {pid, true, std::nullopt, std::nullopt}; }
  StillAlive failing(std::int64_t pid, Duration ago) const {
    return {pid, false, now - ago, now - ago};
  }
  StillAlive spoken(std::int64_t pid, Duration ago) const {
    return {pid, false, std::nullopt, now - ago};
  }

  // The first end, which waits for all of `others` if it is a reaction.
  void begin(const SeenEnd& first, const std::vector<StillAlive>& others) {
    REQUIRE(order.gather(first, others) > 0s);
    CHECK_FALSE(order.add(first));
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a crash and an exit wait only for whoever may have been first") {
  for (const Evidence evidence : {kCrash, kExit}) {
    CHECK(order.gather(end(1, evidence), {silent(2), silent(3)}) == 0s);
    CHECK_FALSE(order.open());
  }
  SECTION("those on the way out") {
    CHECK(order.gather(end(1, kCrash), {silent(2), ending(3)}) == EndOrder::kPatience);
    CHECK_FALSE(order.add(end(1, kCrash)));
    CHECK(order.add(end(3, kCrash)));
  }
  SECTION("an exit for those that said before that they fail") {
    CHECK(order.gather(end(1, kExit, 10ms, 10ms), {failing(2, 5ms)}) == 0s);
    CHECK(order.gather(end(1, kCrash), {failing(2, 20ms)}) == 0s);
    CHECK(order.gather(end(1, kExit), {failing(2, 5ms), ending(3)}) ==
          EndOrder::kPatienceWithFailing);
    CHECK_FALSE(order.add(end(1, kExit)));
    CHECK_FALSE(order.add(end(3, kExit)));
    CHECK(order.add(end(2, kExit)));
  }
  SECTION("an exit for those that had last words before it had") {
    CHECK(order.gather(end(1, kExit, 10ms), {spoken(2, 5ms)}) == 0s);
    CHECK(order.gather(end(1, kCrash, 10ms), {spoken(2, 20ms)}) == 0s);
    CHECK(order.gather(end(1, kExit, 10ms), {spoken(2, 20ms)}) == EndOrder::kPatienceWithSpeakers);
  }
}

TEST_CASE_METHOD(Fixture, "of those that end together the best evidence is told first") {
  begin(end(1, kReaction), {ending(2), ending(3), silent(4)});
  now = now + 1ms;
  CHECK_FALSE(order.add(end(2, kExit)));
  now = now + 1ms;
  CHECK_FALSE(order.add(end(4, std::nullopt)));
  CHECK(order.add(end(3, kCrash)));
  CHECK(order.close() == Pids{3, 2, 1, 4});
  CHECK_FALSE(order.open());
}

TEST_CASE_METHOD(Fixture, "who says that it lost a peer reacts, and is told last of all failures") {
  begin(end(1, Evidence::kLostPeer, 5ms), {silent(2), silent(3)});
  CHECK(order.asks_for_others(kExit));
  CHECK_FALSE(order.asks_for_others(Evidence::kLostPeer));
  CHECK_FALSE(order.add(end(2, kReaction, 4ms)));
  CHECK(order.add(end(3, std::nullopt)));
  CHECK(order.close() == Pids{2, 1, 3});
}

TEST_CASE_METHOD(Fixture, "among equals the one is first whose failure began first") {
  begin(end(1, kExit), {ending(2), ending(3)});
  CHECK_FALSE(order.add(end(2, kExit, std::nullopt, 30ms)));
  CHECK(order.add(end(3, kExit, std::nullopt, 10ms)));
  CHECK(order.close() == Pids{2, 3, 1});
}

TEST_CASE_METHOD(Fixture, "reactions wait for everybody until an end comes that is none") {
  CHECK(order.asks_for_others(kReaction));
  begin(end(1, kReaction), {silent(2), silent(3), silent(4)});
  CHECK_FALSE(order.asks_for_others(kReaction));
  REQUIRE(order.asks_for_others(kExit));
  CHECK(order.gather(end(2, kExit, 5ms), {silent(3), spoken(4, 9ms)}) == 0s);
  CHECK_FALSE(order.add(end(2, kExit, 5ms)));
  CHECK_FALSE(order.asks_for_others(kExit));
  CHECK(order.add(end(4, kReaction)));  // nobody waits for 3
  CHECK(order.close() == Pids{2, 1, 4});
}

TEST_CASE_METHOD(Fixture, "a reaction waits for those elsewhere until they are heard of") {
  order.set_peers_elsewhere(true);
  SECTION("nothing else does") {
    CHECK(order.gather(end(1, kCrash), {}) == 0s);
    CHECK(order.gather(end(1, kExit, 5ms), {silent(2)}) == 0s);
    CHECK_FALSE(order.heard_from_elsewhere());
  }
  SECTION("and all that end meanwhile with it") {
    CHECK(order.gather(end(1, kReaction), {}) == EndOrder::kPatienceWithReaction);
    CHECK_FALSE(order.add(end(1, kReaction)));
    CHECK_FALSE(order.add(end(2, kReaction, 5ms)));
    CHECK(order.heard_from_elsewhere());
    CHECK(order.close() == Pids{1, 2});
  }
  SECTION("then only for those here") {
    begin(end(1, kReaction), {failing(2, 5ms), silent(3)});
    CHECK_FALSE(order.heard_from_elsewhere());
    CHECK_FALSE(order.add(end(3, kReaction)));
    CHECK(order.add(end(2, kExit, 5ms, 5ms)));
    CHECK(order.close() == Pids{2, 1, 3});
  }
  SECTION("and no longer once an end comes that is none") {
    begin(end(1, kReaction), {silent(2)});
    CHECK(order.gather(end(2, kExit), {}) == 0s);
    CHECK(order.add(end(2, kExit)));
    CHECK(order.close() == Pids{2, 1});
  }
  SECTION("each time anew") {
    begin(end(1, kReaction), {});
    CHECK(order.heard_from_elsewhere());
    order.close();
    begin(end(2, kReaction), {});
  }
}

TEST_CASE_METHOD(Fixture, "last words decide where all had some, and never against silent ones") {
  begin(end(1, kReaction, 10ms), {silent(2)});
  CHECK(order.add(end(2, kReaction, 40ms)));
  CHECK(order.close() == Pids{2, 1});
  begin(end(1, kReaction), {silent(2), silent(3)});
  CHECK_FALSE(order.add(end(2, kReaction, 40ms)));
  CHECK(order.add(end(3, kExit, 5ms)));
  CHECK(order.close() == Pids{3, 1, 2});
}

TEST_CASE_METHOD(Fixture, "a crash that began after the first end is not its cause") {
  begin(end(1, kReaction, 2ms), {silent(2), ending(3)});
  now = now + 100ms;
  SECTION("nothing of it was seen then") {
    CHECK_FALSE(order.add(end(2, kCrash)));
    CHECK(order.add(end(3, kReaction)));
    CHECK(order.close() == Pids{1, 2, 3});
  }
  SECTION("it was on the way out then") {
    CHECK_FALSE(order.add(end(2, kReaction)));
    CHECK(order.add(end(3, kCrash)));
    CHECK(order.close() == Pids{3, 1, 2});
  }
  SECTION("it crashed while it left after an error that it had told") {
    CHECK_FALSE(order.add(end(2, kCrash, 110ms)));
    CHECK(order.add(end(3, kReaction)));
    CHECK(order.close() == Pids{2, 1, 3});
  }
  SECTION("its words are about the first one") {
    CHECK_FALSE(order.add(end(2, kCrash, 101ms)));
    CHECK(order.add(end(3, kReaction, 99ms)));
    CHECK(order.close() == Pids{1, 2, 3});
  }
  SECTION("its error file is older") {
    CHECK_FALSE(order.add(end(2, kCrash, 105ms, 105ms)));
    CHECK(order.add(end(3, kReaction)));
    CHECK(order.close() == Pids{2, 1, 3});
  }
}

}  // namespace muster::agent
