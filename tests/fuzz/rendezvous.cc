// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous machine driven by bytes: a few nodes that join, answer, fail, leave, break their
// streams and lie; time that creeps, jumps and stands still; operators, restarts of the server.
// Proves that no sequence of events ends the process or breaks a promise of server_judge.h:
// whole ranks, one answer, numbers that never fall, one outcome, a journal that is what the
// machine knows and that its border takes back, messages that the agents' border takes, bounds,
// no deadline that comes again for ever, and rest once nobody talks any more.
#include <cstdint>

#include "tests/fuzz/server_world.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kMostActs = 300;
  muster::fuzz::Input input(data, size);
  muster::fuzz::ServerWorld world(input);
  for (int i = 0; i < kMostActs && !input.empty(); ++i)
    world.act();
  world.fall_silent();
  return 0;
}
