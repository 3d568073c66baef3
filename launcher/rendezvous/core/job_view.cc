// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/address.h"
#include "launcher/rendezvous/core/job.h"

namespace muster::rendezvous {

JobView Job::view(Instant now) const {
  JobView view;
  view.spec = spec_;
  view.run = run_;
  view.epoch = epoch_;
  view.phase = phase_;
  if (const std::optional<Waiting> waiting = picture()) {
    view.waiting = *waiting;
    view.waiting.remaining = remaining();
  }
  view.generation = generation_;
  const bool lives = life_ && !life_->ended;
  if (lives) {
    view.world_size = life_->world_size;
    view.master_addr = life_->master_addr;
    view.master_port = life_->master_port;
  }
  view.restarts_used = budget_.used();
  for (const auto& [name, member] : members_) {
    MemberView shown;
    shown.node = name;
    shown.host = member.facts.host;
    shown.addr = own_address(member);
    shown.slots = member.facts.slots;
    shown.role = member.role;
    shown.incarnation = member.incarnation;
    shown.connected = member.connected();
    shown.leaving = member.leaving;
    shown.suspended = member.suspended;
    if (const MemberRanks* ranks = lives ? ranks_of(name) : nullptr) shown.ranks = *ranks;
    shown.heartbeat_age = now - member.heard_at;
    shown.progress = member.progress;
    shown.gpus = member.facts.gpus;
    shown.gpu = member.facts.gpu;
    view.members.push_back(std::move(shown));
  }
  view.last_failure = last_failure_;
  view.outcome = outcome_;
  view.goodput = goodput_so_far(now);
  view.recoveries = recoveries_.summary();
  view.age = now - started_at_;
  return view;
}

}  // namespace muster::rendezvous
