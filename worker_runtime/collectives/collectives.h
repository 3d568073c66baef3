// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of one generation do together. One primitive, `exchange`, is all that a backend
// implements (local: threads of one process; tcp: gloo as transport); everything else is built on
// it in ops.h, so that every backend adds in the same order and gives the same bits.
//
// Before payload moves, both sides of every pair exchange a 32-byte header {generation, sequence,
// operation, dtype, bytes, layout hash} and compare: a mismatch is a named error on both sides,
// never a hang or silent garbage.
//
// Thread rule: one thread per object; blocking; all ranks call in the same order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <absl/status/status.h>

namespace muster::runtime {

enum class Operation : std::uint16_t {
  kBarrier = 1,
  kBroadcast,
  kAllReduce,
  kControl,
  kAllGather,
  kReduceTree
};
enum class WireType : std::uint16_t { kBytes = 0, kF32, kBf16, kF16, kF64, kU64 };

// What both sides must agree on, besides generation and sequence, which the backend fills in.
struct OperationKey {
  Operation operation = Operation::kBarrier;
  WireType type = WireType::kBytes;
  std::uint64_t layout_hash = 0;  // of the flat layout / sequence; 0 where it does not matter
};

// Errors, told apart by code (error_exit_code maps them):
//   kUnavailable         a peer is gone; the message names its rank            -> exit 81
//   kFailedPrecondition  header mismatch; names rank, sequence, both headers   -> exit 82
//   kDeadlineExceeded    no progress within the deadline; names the rank       -> exit 83
// After any error the object is poisoned: every later call returns the same error.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::int64_t generation() const = 0;

  // Sends send[r] to rank r and receives recv[r] from it, for all r != rank(), concurrently;
  // send[rank()] and recv[rank()] are ignored (the caller copies its own part). Empty spans are
  // allowed and still exchange a header. Sizes of recv must equal the peers' sends.
  // REQUIRES: send.size() == recv.size() == size().
  virtual absl::Status exchange(const OperationKey& key,
                                std::span<const std::span<const std::byte>> send,
                                std::span<const std::span<std::byte>> recv) = 0;

  // The lowest rank known to be gone, or -1. For error.json's "peer".
  virtual int lost_peer() const = 0;
};

// 81, 82, 83 for the three kinds above; 70 for anything else.
int error_exit_code(const absl::Status& status);

}  // namespace muster::runtime
