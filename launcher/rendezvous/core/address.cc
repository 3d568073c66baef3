// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/address.h"

#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

// The hosting node's own streams say nothing about how others reach it; theirs do.
std::string dialed_by_others(const std::vector<const Member*>& members) {
  for (const Member* member : members) {
    if (!member->facts.hosts_server && !member->facts.dialed_addr.empty()) {
      return member->facts.dialed_addr;
    }
  }
  return members.front()->facts.dialed_addr;
}

std::string address_of_first(const std::vector<const Member*>& members) {
  const Member& first = *members.front();
  if (!first.facts.advertise_addr.empty()) return first.facts.advertise_addr;
  if (first.facts.hosts_server) return dialed_by_others(members);
  if (!first.observed_addr.empty()) return first.observed_addr;
  return first.facts.dialed_addr;
}

// A member that is on another host than the first one; nullptr: all may be on one.
const Member* on_other_host(const std::vector<const Member*>& members) {
  const Member& first = *members.front();
  for (const Member* member : members) {
    const bool elsewhere =
        member->facts.host != first.facts.host || member->facts.boot_id != first.facts.boot_id;
    const bool remote = !member->observed_addr.empty() && !is_loopback(member->observed_addr);
    if (elsewhere && remote) return member;
  }
  return nullptr;
}

}  // namespace

bool is_loopback(std::string_view address) {
  if (address.starts_with('[')) address.remove_prefix(1);
  if (address.ends_with(']')) address.remove_suffix(1);
  if (address.starts_with("::ffff:")) address.remove_prefix(7);
  return address == "::1" || address == "localhost" || address.starts_with("127.");
}

std::string own_address(const Member& member) {
  for (const std::string* known :
       {&member.facts.advertise_addr, &member.observed_addr, &member.facts.dialed_addr}) {
    if (!known->empty()) return *known;
  }
  return "127.0.0.1";
}

MasterAddress choose_master_address(const std::vector<const Member*>& members) {
  MUSTER_CHECK(!members.empty());
  const Member& first = *members.front();
  MasterAddress chosen{address_of_first(members), {}};
  if (members.size() == 1) {
    // Nobody else has to find it.
    if (chosen.addr.empty()) chosen.addr = "127.0.0.1";
    return chosen;
  }
  if (chosen.addr.empty()) {
    chosen.refusal = "no address is known at which the other nodes reach node " + first.facts.name +
                     ", which has rank 0: give --advertise-addr there";
    return chosen;
  }
  const Member* other = is_loopback(chosen.addr) ? on_other_host(members) : nullptr;
  if (other != nullptr) {
    chosen.refusal = "MASTER_ADDR would be " + chosen.addr + " (node " + first.facts.name +
                     ", which has rank 0), but node " + other->facts.name +
                     " is on another host (" + other->observed_addr +
                     "): give --advertise-addr on node " + first.facts.name;
  }
  return chosen;
}

}  // namespace muster::rendezvous
