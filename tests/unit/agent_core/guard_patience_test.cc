// SPDX-License-Identifier: Apache-2.0
#include "agent/core/guard_patience.h"

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

using Order = GuardPatience::Order;

constexpr Instant at(Duration since_begin) {
  return {since_begin};
}

}  // namespace

TEST_CASE("an agent that acts is waited for up to the limit, counted from the first signal") {
  GuardPatience patience(45s);
  CHECK_FALSE(patience.deadline());
  patience.told(at(1s), 0);
  CHECK(patience.deadline() == at(46s));
  patience.told(at(3s), 1);
  CHECK(patience.deadline() == at(46s));
  CHECK(patience.look(at(45s), 2) == Order::kWait);
  CHECK(patience.look(at(46s), 2) == Order::kKill);
}

TEST_CASE("one that may take for ever is killed by the third signal if it takes none") {
  const std::uint32_t heard = GENERATE(0U, 1U, 2U);  // then it hangs
  GuardPatience patience(std::nullopt);
  patience.told(at(1s), 0);
  patience.told(at(2s), std::min(heard, 1U));
  CHECK_FALSE(patience.deadline());
  patience.told(at(3s), heard);
  CHECK(patience.deadline() == at(4s));
  CHECK(patience.look(at(3900ms), heard) == Order::kWait);
  CHECK(patience.look(at(4s), heard) == Order::kKill);
}

TEST_CASE("one that has taken three is trusted, however many follow") {
  GuardPatience patience(std::nullopt);
  for (const Duration when : {0ms, 120ms, 240ms})
    patience.told(at(when), when == 240ms ? 2 : 1);
  patience.told(at(1239ms), 3);  // a moment before the look
  CHECK(patience.look(at(1240ms), 3) == Order::kWait);
  CHECK_FALSE(patience.deadline());
  patience.told(at(9s), 3);
  CHECK_FALSE(patience.deadline());
}

TEST_CASE("what became one signal while the agent did not look is sent again") {
  GuardPatience patience(std::nullopt);
  for (const Duration when : {0ms, 120ms, 240ms})
    patience.told(at(when), 0);
  CHECK(patience.look(at(1240ms), 1) == Order::kSendAgain);
  CHECK(patience.deadline() == at(1390ms));
  CHECK(patience.look(at(1390ms), 2) == Order::kSendAgain);
  CHECK(patience.look(at(1540ms), 3) == Order::kWait);
  CHECK_FALSE(patience.deadline());
}

TEST_CASE("one that hangs over what is sent again is killed after all") {
  GuardPatience patience(std::nullopt);
  for (const Duration when : {0ms, 120ms, 240ms})
    patience.told(at(when), 0);
  Instant now = at(1240ms);
  Order order = patience.look(now, 1);
  while (order == Order::kSendAgain) {
    now = *patience.deadline();
    order = patience.look(now, 1);
  }
  CHECK(order == Order::kKill);
  CHECK(now <= at(2400ms));
}

TEST_CASE("a key that arrives twice is one signal") {
  GuardPatience patience(std::nullopt);
  for (const Duration when : {0ms, 50ms, 90ms})
    patience.told(at(when), 0);
  CHECK_FALSE(patience.deadline());
}

}  // namespace muster::agent
