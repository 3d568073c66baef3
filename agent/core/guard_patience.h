// SPDX-License-Identifier: Apache-2.0
//
// How long a guardian waits for an agent that was told to stop. An agent that acts keeps its own
// times (machine_end.cc); this is for one that cannot: its loop sits in a dead file system, or the
// process is stopped.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/base/time.h"

namespace muster::agent {

class GuardPatience {
 public:
  // Two signals within it are one: a terminal may deliver a key twice.
  static constexpr Duration kTogether = 100ms;
  // The third signal kills. So long for the agent to take it, which does that itself.
  static constexpr Duration kHearing = 1s;

  // `limit`: from the first signal to the agent's end; nullopt: it may take for ever.
  explicit GuardPatience(std::optional<Duration> limit) : limit_(limit) {}

  // A signal to stop has arrived; `heard`: signals that the agent has taken so far. `passed_on`: it
  // has not had this one yet; else it may, from who sent it to both.
  void told(Instant now, std::uint32_t heard, bool passed_on);
  // When to ask over() again; nullopt: nothing to wait for.
  std::optional<Instant> deadline() const;
  // Whether the agent is to be killed.
  bool over(Instant now, std::uint32_t heard);

 private:
  std::optional<Duration> limit_;
  int signals_ = 0;
  std::optional<Instant> last_;
  std::optional<Instant> end_;
  std::uint32_t heard_ = 0;            // at the last signal
  std::uint32_t unheard_ = 0;          // still so many: it has not taken the last one
  std::optional<Instant> hear_until_;  // the third, or a later one
};

}  // namespace muster::agent
