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

// By group rank. Explicit node ranks are places; nodes that stay keep theirs, or the next where one
// of those took it, and their order; newcomers fill the lowest places that are free: those that a
// scheduler numbered first, by that number, the others by host, address and name, naturally. Then
// empty places close up.
std::vector<MemberRanks> assign_ranks(const std::vector<Candidate>& candidates);

}  // namespace muster::rendezvous
