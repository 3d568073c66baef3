// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/recoveries.h"

#include <catch2/catch.hpp>

namespace muster::rendezvous {

TEST_CASE("recoveries are counted, and their medians are those of the newest") {
  Recoveries recoveries;
  CHECK(recoveries.summary() == RecoverySummary{});
  for (const Duration spawn : {30ms, 10ms, 20ms}) {
    event::Recovered recovered;
    recovered.detect = 1ms;
    recovered.stop = 40ms - spawn;
    recovered.spawn = spawn;
    recovered.total = 50ms;
    recoveries.add(recovered);
  }
  CHECK(recoveries.summary() == RecoverySummary{3, 1ms, 20ms, 0ms, 20ms, 50ms});
  event::Recovered slow;
  slow.total = 9s;
  for (std::size_t i = 0; i < Recoveries::kKept; ++i)
    recoveries.add(slow);
  CHECK(recoveries.summary().count == 3 + Recoveries::kKept);
  CHECK(recoveries.summary().detect == 0ms);
  CHECK(recoveries.summary().total == 9s);
}

}  // namespace muster::rendezvous
