// SPDX-License-Identifier: Apache-2.0
//
// Time for the machine: the monotonic clock, less the time in which this strand did not run. A
// server that was suspended, swapped out or starved for twelve seconds must not believe that its
// agents were silent for twelve seconds: their heartbeats lie unread in its sockets. So whoever
// arms a timer also arms this clock, and a time that lies far behind the armed point means a
// stall, by whose length all later times are moved. The machine wakes a little before the
// deadline, which leaves room to read what arrived meanwhile.
//
// Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <optional>

#include "proto/base/time.h"

namespace muster::rendezvous {

class StrandClock {
 public:
  static constexpr Duration kStall = 500ms;      // lateness beyond this is a stall
  static constexpr Duration kReadAhead = 100ms;  // time to read what arrived during one

  // `raw`: the monotonic clock. Returns the machine's time; never less than before.
  Instant now(Instant raw) {
    Instant time = raw - stalled_;
    if (armed_ && time > *armed_ + kStall) {
      const Instant resumed = std::max(last_, *armed_ - kReadAhead);
      stalled_ += time - resumed;
      time = resumed;
    }
    last_ = std::max(last_, time);
    return last_;
  }

  // The point in machine time at which a timer will call; nullopt: no timer runs.
  void arm(std::optional<Instant> at) { armed_ = at; }

  // Total length of all stalls so far.
  Duration stalled() const { return stalled_; }

 private:
  Instant last_;
  std::optional<Instant> armed_;
  Duration stalled_{0};
};

}  // namespace muster::rendezvous
