// SPDX-License-Identifier: Apache-2.0
//
// Which nodes keep breaking the job. A node that was the first cause too often sits out for a
// while, each time for twice as long. Whether the job can spare it is for the caller to say.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/time.h"

namespace muster::rendezvous {

// What is known of one node.
struct Offender {
  std::deque<Instant> causes;    // failures that it began since it last sat out, newest last
  std::uint32_t times = 0;       // that it sat out
  std::optional<Instant> until;  // it sits out
};

class QuarantineBook {
 public:
  explicit QuarantineBook(const Quarantine& rule) : rule_(rule) {}

  // `node` was the first cause of a failure. True: that was once too often.
  bool blame(const NodeName& node, Instant now);
  // It sits out from now on; until when. REQUIRES: blame() was true.
  Instant confine(const NodeName& node, Instant now);
  void release(const NodeName& node);
  // Those whose time is over.
  std::vector<NodeName> due(Instant now) const;

  bool confined(const NodeName& node) const { return until(node).has_value(); }
  std::optional<Instant> until(const NodeName& node) const;
  std::optional<Instant> next_release() const;

  const std::map<NodeName, Offender>& offenders() const { return offenders_; }
  // From a journal. Nobody sits out for longer than the rule says.
  void restore(const NodeName& node, Offender from, Instant now);

 private:
  Duration length(std::uint32_t times) const;
  void forget_old(Instant now);

  Quarantine rule_;
  std::map<NodeName, Offender> offenders_;
};

// However often a node offends, a quarantine is no longer than this, or the first, if that is more.
inline constexpr Duration kLongestQuarantine = 24h;

}  // namespace muster::rendezvous
