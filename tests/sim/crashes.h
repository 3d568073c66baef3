// SPDX-License-Identifier: Apache-2.0
//
// Whether a crash was taken for what a leave took along: a worker that crashed, before anything
// announced was under way, costs a restart and is named, whoever leaves after it.
#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::sim {

// What the server was told of one generation's ends, by its own clock.
class Crashes {
 public:
  void formed(Generation generation, Instant now);
  void heard(const AgentMessage& message, Instant now);
  // An order to stop that is not due to a failure.
  void stop_ordered(Instant now);
  // There was one, before any sign of something announced.
  bool one_was_first() const;

 private:
  void exited(const NodeName& node, const WorkerExited& exited, Instant now);
  void sign(Instant at);

  Generation generation_ = kNoGeneration;
  Instant formed_;
  std::set<std::uint32_t> told_;  // ranks
  std::optional<Instant> crash_;  // the first
  std::optional<Instant> sign_;   // …
  std::set<NodeName> leavers_;
  std::vector<std::pair<NodeName, Instant>> stopped_;  // ended by a signal that asks to stop
};

}  // namespace muster::sim
