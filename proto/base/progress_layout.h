// SPDX-License-Identifier: Apache-2.0
//
// The progress file (contracts §8) as numbers: what the agent needs to read it and to write the
// fault word. The worker's half is worker_runtime/progress.h, which is plain C and includes
// nothing of ours; a unit test compares the two.
//
// A file of 4096 bytes, little-endian. Two writers, never at once: the agent creates it and
// writes fault word and argument before exec; from then on only the worker writes. A worker that
// acts on the fault word zeroes it first, then stores `step` (release): whoever reads a step at
// or beyond the fault's (acquire) and still finds the word knows that this worker does not act
// on it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::progress {

inline constexpr std::size_t kFileBytes = 4096;
inline constexpr std::uint64_t kMagic = 0x314750525453554DU;  // "MUSTRPG1" in file order

inline constexpr std::size_t kMagicOffset = 0;
inline constexpr std::size_t kStepOffset = 8;             // u64
inline constexpr std::size_t kUnixNsOffset = 16;          // u64, the worker's wall clock
inline constexpr std::size_t kLossOffset = 24;            // f64
inline constexpr std::size_t kSamplesOffset = 32;         // u64
inline constexpr std::size_t kCheckpointStepOffset = 40;  // u64; 0: none yet
inline constexpr std::size_t kFaultWordOffset = 48;       // u64, see fault_word()
inline constexpr std::size_t kFaultArgumentOffset = 56;   // u64: signal number or exit code
inline constexpr std::size_t kStateOffset = 64;           // text, zero-padded
inline constexpr std::size_t kStateBytes = 64;

enum class WordAction : std::uint8_t { kNone = 0, kKill = 1, kStop = 2, kExit = 3 };

inline constexpr unsigned kWordActionShift = 56;
inline constexpr std::uint64_t kWordStepMask = (std::uint64_t{1} << kWordActionShift) - 1;

// REQUIRES step <= kWordStepMask.
constexpr std::uint64_t fault_word(WordAction action, std::uint64_t step) {
  return (static_cast<std::uint64_t>(action) << kWordActionShift) | step;
}

}  // namespace muster::progress
