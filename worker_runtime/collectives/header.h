// SPDX-License-Identifier: Apache-2.0
//
// The 32 bytes that both sides of a pair exchange before any payload moves. Each side sees the
// other's header, so both name the same mismatch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime {

inline constexpr std::size_t kHeaderBytes = 32;

struct OperationHeader {
  std::uint32_t generation = 0;
  std::uint32_t sequence = 0;  // of the operation on this object, from 0; wraps
  std::uint16_t operation = 0;
  std::uint16_t type = 0;
  std::uint32_t layout = 0;        // the layout hash, folded
  std::uint64_t send_bytes = 0;    // what the writer will send to the reader
  std::uint64_t expect_bytes = 0;  // what the writer expects from the reader
  bool operator==(const OperationHeader&) const = default;
};

OperationHeader make_header(const OperationKey& key, std::int64_t generation,
                            std::uint64_t sequence, std::size_t send_bytes,
                            std::size_t expect_bytes);

// Little-endian, in the order of the fields.
std::array<std::byte, kHeaderBytes> encode(const OperationHeader& header);
OperationHeader decode(const std::byte* bytes);

// kFailedPrecondition naming `peer`, the sequence and both headers, unless the two fit.
absl::Status compare(const OperationHeader& mine, const OperationHeader& theirs, int rank,
                     int peer);

}  // namespace muster::runtime
