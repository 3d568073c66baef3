// SPDX-License-Identifier: Apache-2.0
//
// What a server knows: all of it is written, little enough is kept, and it is shown as it is.
#include <algorithm>

#include "tests/sim/checks.h"

namespace muster::sim {
namespace {

// Where the time of day stepped back, a server takes what was written as later than its start for
// what happened then; it writes that of a node only when something else of the node changes.
std::vector<rendezvous::NodeRecord> without_times(std::vector<rendezvous::NodeRecord> nodes) {
  for (rendezvous::NodeRecord& node : nodes) {
    for (rendezvous::CauseRecord& cause : node.causes) {
      cause.reported = cause.happened = 0;
      if (cause.spoke) cause.spoke = 0;
    }
  }
  return nodes;
}

}  // namespace

void Checks::journaled(const std::vector<rendezvous::RunRecord>& journal,
                       const std::vector<rendezvous::RunRecord>& known) {
  for (const rendezvous::RunRecord& truth : known) {
    const auto run = std::find_if(journal.begin(), journal.end(), [&](const auto& candidate) {
      return candidate.job.run == truth.job.run;
    });
    if (run == journal.end()) continue;  // forgotten: its server leaves
    if (run->job != truth.job) fail("J1: the journal's job differs from the server's");
    if (run->life != truth.life) fail("J1: the journal's generation differs from the server's");
    const bool same = stepped_back_ ? without_times(run->nodes) == without_times(truth.nodes)
                                    : run->nodes == truth.nodes;
    if (!same) fail("J1: the journal's nodes differ from the server's");
  }
  if (journal.size() > known.size()) fail("J1: the journal knows runs that the server does not");
}

void Checks::bounded(const std::vector<rendezvous::RunRecord>& known, std::size_t connected,
                     std::size_t streams) {
  constexpr std::size_t kRuns = 8;
  constexpr std::size_t kLeaves = 1000;
  constexpr std::size_t kFailures = 64;
  if (known.size() > kRuns) fail("B1: the server knows " + std::to_string(known.size()) + " runs");
  for (const rendezvous::RunRecord& run : known) {
    const auto of_life = [&](const NodeName& node) {
      return run.life &&
             std::any_of(run.life->ranks.begin(), run.life->ranks.end(),
                         [&](const MemberRanks& member) { return member.node == node; });
    };
    for (const rendezvous::NodeRecord& node : run.nodes) {
      if (!node.member && !of_life(node.node) && !node.gone) {
        fail("B1: node " + node.node + ", which is gone, is remembered");
      }
      if (node.causes.size() > options_.slots + 1) fail("B1: too many causes of " + node.node);
      if (node.torn_down.size() > kFailures) fail("B1: too many victims of " + node.node);
    }
    if (run.job.leaves.size() > kLeaves || run.job.aliases.size() > kRuns) {
      fail("B1: leaves or other names of a run are remembered without end");
    }
  }
  if (connected > streams && !server_.leaves) {
    fail("B2: " + std::to_string(connected) + " members are connected over " +
         std::to_string(streams) + " streams");
  }
}

void Checks::shown(const std::vector<rendezvous::JobView>& view, std::size_t connected) {
  std::size_t seen = 0;
  for (const rendezvous::JobView& job : view) {
    for (const rendezvous::MemberView& member : job.members)
      seen += member.connected ? 1U : 0U;
  }
  if (seen != connected) fail("B2: " + std::to_string(seen) + " members are shown as connected");
}

}  // namespace muster::sim
