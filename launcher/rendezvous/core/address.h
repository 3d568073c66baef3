// SPDX-License-Identifier: Apache-2.0
//
// MASTER_ADDR: where the other nodes reach group rank 0's node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/rendezvous/core/member.h"

namespace muster::rendezvous {

// 127.x.y.z, ::1 (and its mapped and bracketed forms), localhost.
bool is_loopback(std::string_view address);

// What is known of a member's own address: what it advertises, else what the server saw; for a
// node alone with its server, loopback.
std::string own_address(const Member& member);

struct MasterAddress {
  std::string addr;
  std::string refusal;  // not empty: no address will do, and why
};

// `members` by group rank, not empty. What was advertised; else, for the node that hosts this
// server, the address at which the others reached it; else the address the server saw. Refused:
// a loopback address in a generation that spans hosts, and no address at all.
MasterAddress choose_master_address(const std::vector<const Member*>& members);

}  // namespace muster::rendezvous
