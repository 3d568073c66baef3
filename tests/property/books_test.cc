// SPDX-License-Identifier: Apache-2.0
//
// What failures cost in time: back-off as the whole machine keeps it, and quarantine.
#include <algorithm>
#include <map>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/rendezvous/core/budget.h"
#include "launcher/rendezvous/core/quarantine.h"
#include "tests/property/driver.h"

namespace muster::rendezvous {
namespace {

Duration some_time(Rng& rng, Duration most) {
  return 1us +
         Duration(static_cast<Duration::rep>(rng.below(static_cast<std::uint64_t>(most.count()))));
}

}  // namespace

TEST_CASE("back-off doubles with each failure that progress or ten good minutes do not forgive") {
  std::size_t long_runs = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    JobSpec spec;
    spec.policy.max_restarts = 1000;
    spec.policy.restart_backoff_max = some_time(rng, 100s);
    Driver driver(spec, seed);
    driver.join("a");
    std::uint64_t step = 0;
    Duration full{0};
    for (int failure = 0; failure < 40; ++failure) {
      const bool healthy = rng.below(6) == 0;
      const Duration runs = healthy ? kHealthyTime + (rng.below(2) == 0 ? 0s : some_time(rng, 1h))
                                    : some_time(rng, kHealthyTime - 2us);
      const bool progresses = rng.below(8) == 0;
      long_runs += healthy && !progresses && full > 0s ? 1U : 0U;
      if (progresses) driver.progresses("a", ++step, 0);
      if (progresses || healthy) full = Duration{0};
      driver.run_to(driver.now() + runs);
      driver.worker_fails("a");
      const Duration delay = driver.restarts.back().second.delay;
      INFO("seed " << seed << ", failure " << failure << ", ran " << format_duration(runs)
                   << ", delay " << format_duration(delay) << " of " << format_duration(full));
      REQUIRE(driver.restarts.size() == static_cast<std::size_t>(failure) + 1);
      REQUIRE(delay >= full * 8 / 10 - 1ms);
      REQUIRE(delay <= full * 12 / 10);
      const Instant failed = driver.now();
      if (delay > 0s) driver.run_until(failed + 1h, driver.prepared);
      REQUIRE(driver.prepared.back().since_origin == (failed + delay).since_origin);
      full =
          std::min(full == Duration{0} ? Duration(1s) : full * 2, spec.policy.restart_backoff_max);
    }
  }
  CHECK(long_runs > 500);
}

TEST_CASE("the jitter of the back-off reaches over all of its fifth to either side") {
  JobPolicy policy;
  policy.max_restarts = 1000000;
  std::vector<int> tenths(10);  // from -20 % to +20 %
  Rng rng(31);
  for (int round = 0; round < 2000; ++round) {
    Budget budget(policy);
    static_cast<void>(budget.worker_failed({}, rng));
    const Duration delay = budget.worker_failed({}, rng).delay;  // of one second
    const auto place = static_cast<std::size_t>((to_seconds(delay) - 0.8) / 0.04);
    ++tenths.at(std::min<std::size_t>(place, 9));
  }
  for (const int count : tenths)
    CHECK((count > 120 && count < 280));
}

TEST_CASE("a node sits out at the N-th cause in the window, each time for twice as long") {
  std::size_t confined = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    Quarantine rule;
    rule.causes = 1 + static_cast<std::uint32_t>(rng.below(4));
    rule.window = 1s * (1 + rng.below(60));
    rule.cooldown = rng.below(8) == 0 ? Duration(30h) : some_time(rng, 3h);
    QuarantineBook book(rule);
    std::map<NodeName, std::vector<Instant>> causes;
    std::map<NodeName, Duration> next;
    std::map<NodeName, Instant> until;
    Instant now;
    for (int blame = 0; blame < 120; ++blame) {
      now = now + 500ms * rng.below(50);  // often at the very edge of the window
      const NodeName node(1, static_cast<char>('a' + rng.below(3)));
      INFO("seed " << seed << ", blame " << blame << " of node " << node);
      for (const NodeName& over : book.due(now)) {
        REQUIRE(until.at(over) <= now);
        book.release(over);
        until.erase(over);
      }
      REQUIRE(std::none_of(until.begin(), until.end(),
                           [&](const auto& entry) { return entry.second <= now; }));
      REQUIRE(book.confined(node) == until.contains(node));
      if (until.contains(node)) continue;
      std::vector<Instant>& own = causes[node];
      own.push_back(now);
      const auto recent = std::count_if(own.begin(), own.end(),
                                        [&](Instant at) { return now - at <= rule.window; });
      const bool too_often = recent >= static_cast<std::ptrdiff_t>(rule.causes);
      REQUIRE(book.blame(node, now) == too_often);
      if (!too_often) continue;
      const Duration length = next.try_emplace(node, rule.cooldown).first->second;
      REQUIRE((book.confine(node, now) - now).count() == length.count());
      until[node] = now + length;
      next[node] = std::min(2 * length, std::max<Duration>(24h, rule.cooldown));
      own.clear();
      ++confined;
      // Their clocks go on together, so that doubled times end within the test.
      if (rng.below(3) == 0) now = until[node];
    }
  }
  CHECK(confined > 2000);
}

}  // namespace muster::rendezvous
