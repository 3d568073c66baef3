// SPDX-License-Identifier: Apache-2.0
//
// In which order samples are seen: a permutation of [0, count) for every epoch, computed for one
// index at a time. Nothing is stored, so a resumed run needs the cursor alone, and no rank needs
// to know what the others read.
//
// A balanced Feistel network over the smallest even number of bits that holds `count`, walked
// until it lands inside [0, count) (Black, Rogaway: "Ciphers with arbitrary finite domains",
// 2002). The domain is below 4 * count, so a walk takes four steps on average at most.
//
// Thread rule: pure.
#pragma once

#include <cstdint>

namespace muster::runtime {

// Part of a checkpoint's meaning: another permutation needs another version.
inline constexpr int kOrderVersion = 1;

// The window that is read at place `index` of epoch `epoch`. REQUIRES index < count.
std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed,
                       std::uint64_t epoch);

}  // namespace muster::runtime
