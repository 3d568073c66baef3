// SPDX-License-Identifier: Apache-2.0
//
// Nodes that keep breaking the job sit out: they stay attached and are not chosen. The job comes
// before its rules: a node is not sent out, and is called back, where MIN is not reached without.
#include <algorithm>

#include "launcher/rendezvous/core/address.h"
#include "launcher/rendezvous/core/job.h"

namespace muster::rendezvous {

bool Job::confined(const NodeName& node) const {
  return quarantine_.confined(node);
}

// One that another cause was too close to may be innocent.
void Job::blame(const Failure& first) {
  const Quarantine& rule = spec_.policy.quarantine;
  const NodeName& node = first.node;
  if (first.ambiguous || !quarantine_.blame(node, now_)) return;
  const auto others = std::count_if(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.first != node && !entry.second.leaving && !confined(entry.first);
  });
  if (others < static_cast<std::ptrdiff_t>(spec_.min_nodes)) return;
  const Instant until = quarantine_.confine(node, now_);
  const std::string often = rule.causes == 1 ? "a failure"
                                             : std::to_string(rule.causes) + " failures within " +
                                                   format_duration(rule.window);
  publish_event(
      node_event(node, event::NodeQuarantined{wall(until), "first cause of " + often + ", for " +
                                                               format_duration(until - now_) +
                                                               "; the last: " + describe(first)}));
  Member* member = find(node);
  if (member == nullptr || member->leaving) return;
  member->role = Role::kSpare;
  touch(node);
  ++picture_version_;
  publish_event(node_event(node, event::NodeLeft{event::NodeLeft::Why::kQuarantined}));
}

// What a node's return from quarantine means for the others.
void Job::let_back(const NodeName& node) {
  const Role role = role_of_newcomer();  // it does not count yet
  quarantine_.release(node);
  Member* member = find(node);
  if (member == nullptr || member->leaving) return;
  member->role = role;
  touch(node);
  ++picture_version_;
  publish_event(node_event(
      node, event::NodeJoined{member->facts.host, own_address(*member), member->facts.slots,
                              member->role == Role::kSpare, member->incarnation}));
}

void Job::end_quarantines() {
  if (finished()) return;
  for (const NodeName& node : quarantine_.due(now_))
    let_back(node);
}

// Those who would sit out for the shortest time first, where that reaches MIN at all.
std::size_t Job::call_back(std::size_t missing) {
  std::vector<std::pair<Instant, NodeName>> ready;
  for (const auto& [name, member] : members_) {
    const std::optional<Instant> until = quarantine_.until(name);
    if (until && is_free(name, member)) ready.emplace_back(*until, name);
  }
  if (ready.size() < missing) return 0;
  std::sort(ready.begin(), ready.end());
  for (std::size_t i = 0; i < missing; ++i)
    let_back(ready[i].second);
  return missing;
}

}  // namespace muster::rendezvous
