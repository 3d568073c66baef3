// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/budget.h"

#include <catch2/catch.hpp>

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

JobPolicy policy(std::uint32_t restarts) {
  JobPolicy policy;
  policy.max_restarts = restarts;
  return policy;
}

Instant at(Duration since) {
  return {since};
}

}  // namespace

TEST_CASE("the budget is spent once and never exceeded") {
  Budget budget(policy(2));
  Rng rng(1);
  CHECK(budget.worker_failed(at(1s), rng).allowed);
  CHECK(budget.worker_failed(at(2s), rng).charged);
  CHECK_FALSE(budget.worker_failed(at(3s), rng).allowed);
  budget.progressed();
  CHECK_FALSE(budget.worker_failed(at(4s), rng).allowed);
  CHECK(budget.used() == 2);
}

TEST_CASE("backoff: none, then one second doubling, give or take a fifth, to the maximum") {
  Budget budget(policy(100));
  Rng rng(5);
  CHECK(budget.worker_failed(at(0s), rng).delay == 0s);
  Duration full = 1s;
  for (int failure = 0; failure < 12; ++failure) {
    const Duration delay = budget.worker_failed(at(0s), rng).delay;
    CHECK(delay >= full * 4 / 5);
    CHECK(delay <= full * 6 / 5);
    full = std::min<Duration>(full * 2, 30s);
  }
  budget.progressed();
  CHECK(budget.worker_failed(at(0s), rng).delay == 0s);
  CHECK(budget.worker_failed(at(0s), rng).delay >= 800ms);
}

TEST_CASE("a maximal backoff of zero means none") {
  JobPolicy none = policy(9);
  none.restart_backoff_max = 0s;
  Budget budget(none);
  Rng rng(5);
  for (int failure = 0; failure < 5; ++failure) {
    CHECK(budget.worker_failed(at(0s), rng).delay == 0s);
  }
}

TEST_CASE("a window forgives what is old") {
  JobPolicy windowed = policy(2);
  windowed.max_restarts_window = 60s;
  Budget budget(windowed);
  Rng rng(1);
  CHECK(budget.worker_failed(at(0s), rng).allowed);
  CHECK(budget.worker_failed(at(30s), rng).allowed);
  CHECK_FALSE(budget.worker_failed(at(59s), rng).allowed);
  CHECK(budget.worker_failed(at(61s), rng).allowed);
  CHECK(budget.used() == 3);
  CHECK_FALSE(budget.worker_failed(at(89s), rng).allowed);
}

TEST_CASE("node losses are free as far as the policy says, and only in elastic jobs") {
  Rng rng(1);
  SECTION("elastic") {
    Budget budget(policy(1));
    for (int loss = 0; loss < 3; ++loss) {
      const Charge charge = budget.node_lost(true, at(0s), rng);
      CHECK(charge.allowed);
      CHECK_FALSE(charge.charged);
      CHECK(charge.delay == 0s);
    }
    CHECK(budget.node_lost(true, at(0s), rng).charged);
    CHECK_FALSE(budget.node_lost(true, at(0s), rng).allowed);
    budget.progressed();
    CHECK(budget.node_lost(true, at(0s), rng).allowed);
    CHECK(budget.used() == 1);
  }
  SECTION("fixed size") {
    Budget budget(policy(1));
    CHECK(budget.node_lost(false, at(0s), rng).charged);
    CHECK_FALSE(budget.node_lost(false, at(0s), rng).allowed);
  }
}

TEST_CASE("what another server charged counts, and never lowers the count") {
  Rng rng(1);
  Budget budget(policy(3));
  budget.adopt(2, at(0s));
  budget.adopt(1, at(0s));
  CHECK(budget.used() == 2);
  CHECK(budget.worker_failed(at(0s), rng).allowed);
  CHECK_FALSE(budget.worker_failed(at(0s), rng).allowed);

  JobPolicy windowed = policy(2);
  windowed.max_restarts_window = 60s;
  Budget other(windowed);
  other.adopt(7, at(10s));
  CHECK(other.used() == 7);
  CHECK_FALSE(other.worker_failed(at(20s), rng).allowed);
  CHECK(other.worker_failed(at(71s), rng).allowed);
  CHECK(other.words(at(72s)) == "1 of 2 restarts within 1m used, 8 in all");
  CHECK(budget.words(at(0s)) == "3 of 3 restarts used");
}
