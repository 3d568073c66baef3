// SPDX-License-Identifier: Apache-2.0
//
// A step's gradient: from this rank's micro-batches to the sum over all ranks.
//
// Two orders of adding. Plain: each rank adds its micro-batches one after the other, the ranks are
// added in rank order. Deterministic: micro-batches are the leaves of one binary tree over the
// global batch, whoever computes them, so that the sum has the same bits at any world size.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <absl/status/status.h>

#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/model/gpt.h"

namespace muster::runtime {

class GradientSum {
 public:
  // `layout` must outlive the object.
  GradientSum(const FlatLayout& layout, bool deterministic, WireType wire);

  // Adds one micro-batch's gradient to the span (layout.size, zeros or a running sum).
  using Leaf = std::function<void(std::uint64_t leaf, std::span<float> into)>;

  // Runs `leaf` for every micro-batch of `mine`. Afterwards first_bad() tells of this rank alone.
  void compute(LeafRange mine, const Leaf& leaf);
  // The first tensor with a non-finite number in what compute() made, or kAllFinite.
  std::uint64_t first_bad() const;

  // The sum over all ranks; every rank calls it, also one without micro-batches.
  absl::Status reduce(Collectives& group, std::uint64_t leaf_count);
  // (layout.size) after reduce().
  std::span<const float> sum() const { return sum_; }

 private:
  std::vector<float> take_zeros();
  std::vector<float> subtree_sum(const Subtree& subtree, const Leaf& leaf);

  const FlatLayout& layout_;
  bool deterministic_;
  WireType wire_;
  std::vector<float> sum_;
  std::vector<std::vector<float>> subtrees_;  // deterministic: this rank's, by first leaf
  std::vector<std::vector<float>> spare_;     // buffers to use again
};

}  // namespace muster::runtime
