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
  // The third signal kills, which the agent does itself. It is killed if it takes none of the
  // signals that it has not taken for so long.
  static constexpr Duration kHearing = 1s;
  // Signals that wait become one in the kernel: what the agent is short of is sent again, this
  // often.
  static constexpr Duration kAgain = 150ms;

  enum class Order : std::uint8_t { kWait, kSendAgain, kKill };

  // `limit`: from the first signal to the agent's end; nullopt: it may take for ever.
  explicit GuardPatience(std::optional<Duration> limit) : limit_(limit) {}

  // A signal to stop has arrived; `heard`: how many the agent has taken so far.
  void told(Instant now, std::uint32_t heard);
  // When to ask again; nullopt: nothing to wait for.
  std::optional<Instant> deadline() const;
  Order look(Instant now, std::uint32_t heard);

 private:
  std::optional<Duration> limit_;
  std::uint32_t signals_ = 0;
  std::optional<Instant> last_;
  std::optional<Instant> end_;
  std::optional<Instant> look_at_;  // from the third on, until the agent has taken as many
  Instant took_at_;                 // it took one
  std::uint32_t heard_ = 0;
};

}  // namespace muster::agent
