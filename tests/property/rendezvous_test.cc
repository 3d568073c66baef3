// SPDX-License-Identifier: Apache-2.0
//
// Ranks, windows and back-off against naive statements of what they should be.
#include <algorithm>
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
      now = now + 1ms * rng.below(20000);
      const auto recent = std::count_if(charges.begin(), charges.end(), [&](Instant at) {
        return !policy.max_restarts_window || now - at <= *policy.max_restarts_window;
      });
      const Charge charge = budget.worker_failed(now, rng);
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
      REQUIRE(delay >= full * 8 / 10 - 1ms);
      REQUIRE(delay <= full * 12 / 10);
      full = std::min(full == Duration{0} ? Duration(1s) : full * 2, policy.restart_backoff_max);
    }
  }
}

}  // namespace muster::rendezvous
