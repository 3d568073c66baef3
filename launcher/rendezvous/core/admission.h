// SPDX-License-Identifier: Apache-2.0
//
// Who may not join, with the reason in words that name the holder. Pure questions: each returns
// the refusal, or nullopt where there is nothing against the join.
#pragma once

#include <optional>
#include <string>

#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::rendezvous {

// What makes no sense whoever says it: empty names, MIN > MAX, no slots, times out of range.
std::optional<JoinRefused> refused_for_content(const Envelope& envelope, const Join& join);

// This server serves one job, and this is another.
std::optional<JoinRefused> refused_by_server(const Options& options, const Join& join);

// Whether a scheduler runs `newer` in place of `holder`: another attempt at a place that it has
// numbered, and a later one where it counts them.
bool is_replaced_by(const NodeFacts& holder, const NodeFacts& newer);

// The job is on, with another program, node count or fault plan. `asked`: the node count that it
// began with, where an operator has scaled it since.
std::optional<JoinRefused> refused_by_job(const JobSpec& ours, const NodeRange& asked,
                                          const Join& join, const std::string& holder);

JoinRefused refusal(JoinRefused::Why why, std::string text);

inline constexpr std::uint32_t kMaxSlots = 4096;  // workers of one node
inline constexpr std::size_t kMaxFaults = 1024;
inline constexpr std::size_t kMaxNameBytes = 255;  // job ids, node names

}  // namespace muster::rendezvous
