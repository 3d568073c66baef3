// SPDX-License-Identifier: Apache-2.0
//
// The order of ranks once more, by the plainest means: for judging the real one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/rendezvous/core/ranks.h"

namespace muster::sim {

// Runs of digits compare as numbers.
bool naive_natural_less(std::string_view a, std::string_view b);

// One place at a time, by asking who has the best claim to it.
std::vector<MemberRanks> naive_ranks(std::vector<rendezvous::Candidate> left);

}  // namespace muster::sim
