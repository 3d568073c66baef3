// SPDX-License-Identifier: Apache-2.0
//
// Assignments: the one place where a message must make sense as a whole. Ranks that overlap or
// leave a gap would start workers that wait for each other for ever.
#include "proto/wire/job.h"

namespace muster::wire {

void write(const MemberRanks& from, v1::MemberRanks& to) {
  to.set_node(from.node);
  to.set_group_rank(from.group_rank);
  to.set_first_rank(from.first_rank);
  to.set_count(from.count);
}

MemberRanks read(const v1::MemberRanks& from, Border& border) {
  MemberRanks to;
  to.node = border.required_name("node", from.node());
  to.group_rank = border.between("group_rank", from.group_rank(), 0U,
                                 static_cast<std::uint32_t>(kMaxMembers) - 1);
  to.first_rank = border.between("first_rank", from.first_rank(), 0U, kMaxWorldSize - 1);
  to.count = border.between("count", from.count(), 1U, kMaxSlots);
  return to;
}

void write(const Assignment& from, v1::Assignment& to) {
  to.set_generation(from.generation);
  to.set_world_size(from.world_size);
  for (const MemberRanks& member : from.members)
    write(member, *to.add_members());
  to.set_group_rank(from.group_rank);
  to.set_master_addr(from.master_addr);
  to.set_restarts_used(from.restarts_used);
  to.set_max_restarts(from.max_restarts);
  to.set_reason(to_enum<v1::FormReason>(from.reason));
  for (const ArmedFault& fault : from.faults)
    write(fault, *to.add_faults());
}

Assignment read(const v1::Assignment& from, Border& border) {
  Assignment to;
  to.generation = border.generation("generation", from.generation());
  if (to.generation < 0) border.complain("generation", "must be at least 0");
  to.world_size = border.between("world_size", from.world_size(), 1U, kMaxWorldSize);
  if (border.count("members", from.members_size(), kMaxMembers)) {
    std::uint64_t next_rank = 0;
    for (const v1::MemberRanks& member : from.members()) {
      MemberRanks ranks = border.within("members", [&] { return read(member, border); });
      if (ranks.group_rank != to.members.size()) border.complain("members", "not by group rank");
      if (ranks.first_rank != next_rank) border.complain("members", "ranks overlap or have a gap");
      next_rank += ranks.count;
      to.members.push_back(std::move(ranks));
    }
    if (next_rank != to.world_size) border.complain("members", "ranks do not add up to world_size");
  }
  to.group_rank = from.group_rank();
  if (to.group_rank >= to.members.size()) border.complain("group_rank", "is no member");
  to.master_addr = border.name("master_addr", from.master_addr());
  to.restarts_used = from.restarts_used();
  to.max_restarts = from.max_restarts();
  to.reason = border.enumerator("reason", from.reason(), FormReason::kStateLost);
  if (border.count("faults", from.faults_size(), kMaxFaults)) {
    for (const v1::ArmedFault& fault : from.faults()) {
      to.faults.push_back(border.within("faults", [&] { return read(fault, border); }));
    }
  }
  return to;
}

}  // namespace muster::wire
