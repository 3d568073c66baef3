// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/record.h"

#include <algorithm>

#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::rendezvous {

namespace {

bool before(const NodeRecord& node, const NodeName& name) {
  return node.node < name;
}

}  // namespace

void apply(const Persist& change, RunRecord& run) {
  run.job = change.record;
  run.progress = change.progress;
  if (change.life) run.life = change.life;
  for (const NodeRecord& node : change.nodes) {
    const auto at = std::lower_bound(run.nodes.begin(), run.nodes.end(), node.node, before);
    if (at != run.nodes.end() && at->node == node.node) {
      *at = node;
    } else {
      run.nodes.insert(at, node);
    }
  }
  for (const NodeName& name : change.removed) {
    const auto at = std::lower_bound(run.nodes.begin(), run.nodes.end(), name, before);
    if (at != run.nodes.end() && at->node == name) run.nodes.erase(at);
  }
}

void write_down(const std::vector<Action>& actions, std::vector<RunRecord>& journal) {
  const auto place = [&](const RunId& id) {
    return std::find_if(journal.begin(), journal.end(),
                        [&](const RunRecord& run) { return run.job.run == id; });
  };
  for (const Action& action : actions) {
    if (const auto* forget = std::get_if<Forget>(&action)) {
      const auto run = place(forget->run);
      if (run != journal.end()) journal.erase(run);
    } else if (const auto* persist = std::get_if<Persist>(&action)) {
      auto run = place(persist->record.run);
      if (run == journal.end()) run = journal.insert(journal.end(), RunRecord{});
      apply(*persist, *run);
    }
  }
}

}  // namespace muster::rendezvous
