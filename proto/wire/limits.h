// SPDX-License-Identifier: Apache-2.0
//
// How large a thing may be that crosses the border. The receiver refuses what is larger; the
// sender cuts text that is only for people, so that a long one never costs a stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/base/store.h"
#include "proto/base/time.h"

namespace muster::wire {

inline constexpr std::size_t kMaxNameBytes = 512;         // job, run, node, address, user
inline constexpr std::size_t kMaxTextBytes = 4096;        // one line for people: cut
inline constexpr std::size_t kMaxStderrTailBytes = 8192;  // cut at its beginning
inline constexpr std::size_t kMaxErrorFileBytes = 65536;  // cut
inline constexpr std::size_t kMaxMembers = 16384;         // of a generation
inline constexpr std::size_t kMaxFaults = 1024;
inline constexpr std::size_t kMaxVictims = 256;    // cut
inline constexpr std::uint32_t kMaxSlots = 65536;  // workers of one node
inline constexpr std::uint32_t kMaxWorldSize = 1U << 20U;
inline constexpr Duration kMaxDuration = std::chrono::hours(24 * 3660);

// Of one message, both ways. The largest legal one is an Outcome with all its victims:
// (kMaxVictims + 1) * (tail + error file + texts), about 19 MiB.
inline constexpr int kMaxMessageBytes = 24 << 20;
static_assert((kMaxVictims + 2) * (kMaxStderrTailBytes + kMaxErrorFileBytes + 2 * kMaxNameBytes) <
              static_cast<std::size_t>(kMaxMessageBytes));
static_assert(kMaxStoreKeyBytes + kMaxStoreValueBytes + kMaxNameBytes <
              static_cast<std::size_t>(kMaxMessageBytes));

}  // namespace muster::wire
