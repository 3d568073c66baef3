// SPDX-License-Identifier: Apache-2.0
//
// How long the job's failures kept its workers from running, for operators. Of the newest 256; a
// server that is started again begins anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "proto/base/events.h"
#include "proto/base/time.h"

namespace muster::rendezvous {

// Medians of each part on its own: they need not add up to the median of the whole.
struct RecoverySummary {
  std::uint64_t count = 0;  // all of them
  Duration detect{0};
  Duration stop{0};
  Duration form{0};
  Duration spawn{0};
  Duration total{0};
  bool operator==(const RecoverySummary&) const = default;
};

class Recoveries {
 public:
  static constexpr std::size_t kKept = 256;

  void add(const event::Recovered& recovered);
  RecoverySummary summary() const;

 private:
  std::uint64_t count_ = 0;
  std::deque<event::Recovered> newest_;
};

}  // namespace muster::rendezvous
