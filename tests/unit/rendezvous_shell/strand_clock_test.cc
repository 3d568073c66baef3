// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/strand_clock.h"

#include <catch2/catch.hpp>

namespace muster::rendezvous {

TEST_CASE("time runs on while the strand does", "[strand_clock]") {
  StrandClock clock;
  CHECK(clock.now(Instant{1s}) == Instant{1s});
  clock.arm(Instant{2s});
  CHECK(clock.now(Instant{2s + 400ms}) == Instant{2s + 400ms});  // late, but no stall
  clock.arm(std::nullopt);
  CHECK(clock.now(Instant{900s}) == Instant{900s});  // nothing was due: nobody was late
  CHECK(clock.stalled() == 0ns);
}

TEST_CASE("a stall moves all later times by its length", "[strand_clock]") {
  StrandClock clock;
  clock.now(Instant{10s});
  clock.arm(Instant{11s});
  // Asleep for twelve seconds; a little is left to read what arrived.
  CHECK(clock.now(Instant{23s}) == Instant{11s - StrandClock::kReadAhead});
  CHECK(clock.stalled() == 12s + StrandClock::kReadAhead);
  CHECK(clock.now(Instant{23s + 50ms}) == Instant{11s - StrandClock::kReadAhead + 50ms});
}

TEST_CASE("time never runs backwards", "[strand_clock]") {
  StrandClock clock;
  clock.now(Instant{10s});
  clock.arm(Instant{10s + 10ms});
  CHECK(clock.now(Instant{20s}) == Instant{10s});
  CHECK(clock.now(Instant{19s}) == Instant{10s});
}

}  // namespace muster::rendezvous
