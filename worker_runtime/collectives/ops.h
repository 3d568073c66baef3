// SPDX-License-Identifier: Apache-2.0
//
// The collective operations of training, on any backend. All are deterministic: for equal inputs
// and world size the result has the same bits on every rank and in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime {

absl::Status barrier(Collectives& group);

// Rank `root`'s bytes to everybody; every rank passes a buffer of the same size.
absl::Status broadcast(Collectives& group, int root, std::span<std::byte> data);

// Everybody's bytes to everybody, in rank order; sizes may differ. result[r] is rank r's.
absl::StatusOr<std::vector<std::vector<std::byte>>> all_gather(Collectives& group,
                                                               std::span<const std::byte> mine);

// Sum over ranks of `data` ((count) f32, the same count on every rank), in place. Direct exchange:
// the vector is cut into size() slices on `block`-element borders; the owner of a slice adds all
// ranks' slices in FP32 in rank order. `wire` kBf16/kF16: slices travel in 16 bits (converted from
// FP32 once at the sender), the sum is rounded to 16 bits once and travels back so.
absl::Status all_reduce_sum(Collectives& group, std::span<float> data, WireType wire,
                            std::size_t block, std::uint64_t layout_hash);

// Deterministic across world sizes. The global batch has `leaf_count` micro-batches; rank r owns
// the contiguous leaves [first, first + count). `subtrees` are this rank's partial sums: one
// vector of `length` floats for every maximal aligned subtree of the complete binary tree over
// [0, leaf_count) that lies inside its range, in order of first leaf (see maximal_subtrees).
// `result` (length f32) receives the tree sum, bitwise the same for any split of the leaves.
absl::Status all_reduce_tree(Collectives& group, std::uint64_t leaf_count,
                             std::span<const std::span<const float>> subtrees,
                             std::span<float> result, std::size_t block, std::uint64_t layout_hash);

// One node of the tree: leaves [first, first + width), width a power of two, first % width == 0.
struct Subtree {
  std::uint64_t first = 0;
  std::uint64_t width = 0;
  bool operator==(const Subtree&) const = default;
};
// The maximal aligned subtrees inside [first, first + count), by first leaf. Pure.
std::vector<Subtree> maximal_subtrees(std::uint64_t first, std::uint64_t count);

// The contiguous range of micro-batches of a rank: floor or ceil of leaf_count / size, the longer
// ranges first; may be empty.
struct LeafRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
LeafRange leaf_range(std::uint64_t leaf_count, int size, int rank);

// The one small all-reduce of a step. Everything that all ranks must decide alike rides in it.
struct Control {
  bool found_inf = false;  // MAX
  // (tensor index, rank) of the first non-finite gradient; MIN. kNone: none.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t first_bad = kNone;  // tensor index << 32 | rank
  bool stop = false;                // MAX
  std::uint64_t tokens = 0;         // SUM
  double loss_sum = 0;              // SUM in rank order, FP64
  // Per-block partial squared norms of the blocks this rank owns, gathered in block order.
  std::vector<double> norm_partials;  // in: own blocks; out: all blocks
  // Loss sums of this rank's micro-batches; out: all, in global micro-batch order. loss_sum of
  // the result is their sum in that order when given.
  std::vector<double> micro_losses;
  std::uint64_t fingerprint = 0;  // must be equal on all ranks, else kFailedPrecondition
};
absl::StatusOr<Control> control_all_reduce(Collectives& group, const Control& mine);

}  // namespace muster::runtime
