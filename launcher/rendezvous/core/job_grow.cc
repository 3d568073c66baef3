// SPDX-License-Identifier: Apache-2.0
//
// When nodes that came late restart a generation that runs below MAX.
#include <algorithm>

#include "launcher/rendezvous/core/job.h"

namespace muster::rendezvous {

// Who waits beside the generation that runs, and could take part in the next one.
std::vector<NodeName> Job::late_nodes() {
  // Nearly always everyone works, and this is asked after every fact but a heartbeat.
  if (members_.size() <= life_->ranks.size() && working_.size() == members_.size()) return {};
  std::vector<NodeName> late;
  for (const auto& [name, member] : members_) {
    if (!member.connected() || member.leaving || working_.contains(name) || confined(name)) {
      continue;
    }
    if (member.grow_again_at > now_) {
      growth_due_ = earlier(growth_due_, member.grow_again_at);
    } else {
      late.push_back(name);
    }
  }
  return late;
}

// At once where the late fill the job, else after a last call, which costs nothing while the old
// generation runs on; a checkpoint is a moment of its own, which does not wait for more nodes.
bool Job::try_grow() {
  growth_due_.reset();
  const std::size_t here = life_->ranks.size();
  // Only a scaling leaves a generation below MIN: to grow is then the operator's order, whatever
  // nodes that come by themselves would do.
  const bool ordered = here < spec_.min_nodes;
  const Grow how = ordered ? Grow::kNow : spec_.policy.grow;
  // Once a rank has finished, starting all again would undo what is done.
  const bool grows = how != Grow::kNever && here < spec_.max_nodes && life_->done.empty();
  const std::vector<NodeName> late = grows ? late_nodes() : std::vector<NodeName>{};
  // Below MIN the old generation is better than none.
  if (late.empty() || here + late.size() < spec_.min_nodes) {
    growth_call_until_.reset();
    return false;
  }
  if (how == Grow::kCheckpoint && !checkpoint_rose_) return false;
  Instant due = now_;
  if (how == Grow::kNow && here + late.size() < spec_.max_nodes) {
    if (!growth_call_until_) growth_call_until_ = now_ + spec_.policy.last_call;
    due = *growth_call_until_;
  }
  if (grown_at_ && !ordered) due = std::max(due, *grown_at_ + spec_.policy.grow_interval);
  if (now_ < due) {
    // A checkpoint that came too early is not caught up with: the next one decides.
    if (how == Grow::kNow) growth_due_ = earlier(growth_due_, due);
    return false;
  }
  growth_call_until_.reset();
  grown_at_ = now_;
  begin_stop(StopWhy::kGrow, true,
             late.size() == 1 ? "node " + late.front() + " joins"
                              : std::to_string(late.size()) + " nodes join");
  return true;
}

}  // namespace muster::rendezvous
