// SPDX-License-Identifier: Apache-2.0
#include "agent/core/guard_patience.h"

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

constexpr Instant at(Duration since_begin) {
  return {since_begin};
}

}  // namespace

TEST_CASE("an agent that acts is waited for up to the limit, counted from the first signal") {
  GuardPatience patience(45s);
  CHECK_FALSE(patience.deadline());
  patience.told(at(1s), 0, true);
  CHECK(patience.deadline() == at(46s));
  patience.told(at(3s), 1, true);
  CHECK(patience.deadline() == at(46s));
  CHECK_FALSE(patience.over(at(45s), 2));
  CHECK(patience.over(at(46s), 2));
}

TEST_CASE("one that may take for ever is killed by the third signal if it does not take it") {
  GuardPatience patience(std::nullopt);
  patience.told(at(1s), 0, true);
  patience.told(at(2s), 0, true);
  CHECK_FALSE(patience.deadline());
  patience.told(at(3s), 0, true);
  CHECK(patience.deadline() == at(4s));
  CHECK_FALSE(patience.over(at(3900ms), 0));
  CHECK(patience.over(at(4s), 0));
}

TEST_CASE("one that takes the third is trusted, until another signal finds it stuck") {
  GuardPatience patience(std::nullopt);
  patience.told(at(1s), 0, true);
  patience.told(at(2s), 1, true);
  patience.told(at(3s), 2, true);
  CHECK_FALSE(patience.over(at(4s), 3));
  CHECK_FALSE(patience.deadline());
  patience.told(at(9s), 3, true);
  CHECK(patience.over(at(10s), 3));
}

TEST_CASE("one that got stuck between two signals has not taken the last") {
  GuardPatience patience(std::nullopt);
  patience.told(at(1s), 0, true);
  patience.told(at(2s), 1, true);
  patience.told(at(3s), 2, true);
  CHECK(patience.over(at(4s), 2));
}

TEST_CASE(
    "of what a terminal sends to both the agent may have taken the last before it is counted") {
  GuardPatience patience(std::nullopt);
  patience.told(at(1s), 1, false);
  patience.told(at(2s), 1, false);  // the second: not yet
  patience.told(at(3s), 3, false);  // the third: already
  CHECK_FALSE(patience.over(at(4s), 3));
  patience.told(at(5s), 3, false);
  CHECK(patience.over(at(6s), 3));
}

TEST_CASE("a key that arrives twice is one signal") {
  GuardPatience patience(std::nullopt);
  patience.told(at(1s), 0, true);
  patience.told(at(1050ms), 0, true);
  patience.told(at(1090ms), 0, true);
  CHECK_FALSE(patience.deadline());
}

}  // namespace muster::agent
