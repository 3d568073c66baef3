// SPDX-License-Identifier: Apache-2.0
//
// Who gets which ranks. Ranks are contiguous by node; a node that stays keeps its place so that
// whatever it holds by rank (shards, caches) stays right, and a newcomer takes a vacated place
// before it lengthens the list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/job.h"

namespace muster::rendezvous {

struct Candidate {
  NodeName name;  // unique among the candidates
  std::string host;
  std::string addr;
  std::uint32_t slots = 1;                  // > 0
  std::optional<std::uint32_t> node_rank;   // explicit; unique where given
  std::optional<std::uint32_t> previous;    // group rank in the last generation; unique
  std::optional<std::uint32_t> index = {};  // a scheduler's; should be unique
};

// Digit runs compare as numbers: gpu-2 before gpu-10. Equal numbers with different zeros ("01",
// "1") fall back to the plain text, so the order is total.
bool natural_less(std::string_view a, std::string_view b);

// By group rank. Nodes that stay keep their group rank and their order. A new one with an explicit
// node rank takes that place, or stands where the order of node ranks wants it; of those who stay
// only it moves others up. Other newcomers fill the lowest places that are free: those that a
// scheduler numbered first, by that number, then by host, address and name, naturally. Empty places
// close up. So rank 0's node loses it only to one that asked for 0, or for less than it did itself.
std::vector<MemberRanks> assign_ranks(const std::vector<Candidate>& candidates);

}  // namespace muster::rendezvous
