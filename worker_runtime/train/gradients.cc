// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/gradients.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "worker_runtime/numerics/reduce.h"
#include "worker_runtime/optim/optimizer.h"

namespace muster::runtime {

GradientSum::GradientSum(const FlatLayout& layout, bool deterministic, WireType wire)
    : layout_(layout), deterministic_(deterministic), wire_(wire), sum_(layout.size) {}

void GradientSum::compute(LeafRange mine, const Leaf& leaf) {
  if (deterministic_) {
    for (const Subtree& subtree : maximal_subtrees(mine.first, mine.count)) {
      subtrees_.push_back(subtree_sum(subtree, leaf));
    }
    return;
  }
  std::fill(sum_.begin(), sum_.end(), 0.0F);
  for (std::uint64_t i = 0; i < mine.count; ++i)
    leaf(mine.first + i, sum_);
}

std::uint64_t GradientSum::first_bad() const {
  if (!deterministic_) return first_non_finite(layout_, 0, sum_);
  std::uint64_t first = kAllFinite;
  for (const std::vector<float>& subtree : subtrees_) {
    first = std::min(first, first_non_finite(layout_, 0, subtree));
  }
  return first;
}

std::vector<float> GradientSum::take_zeros() {
  if (spare_.empty()) return std::vector<float>(layout_.size);
  std::vector<float> buffer = std::move(spare_.back());
  spare_.pop_back();
  std::fill(buffer.begin(), buffer.end(), 0.0F);
  return buffer;
}

// Like carrying in a binary counter: two sums of equal width become one of twice the width, so
// that no more than log2(width) + 1 buffers are alive.
std::vector<float> GradientSum::subtree_sum(const Subtree& subtree, const Leaf& leaf) {
  struct Node {
    std::uint64_t width;
    std::vector<float> sum;
  };
  std::vector<Node> open;
  for (std::uint64_t i = 0; i < subtree.width; ++i) {
    Node node{1, take_zeros()};
    leaf(subtree.first + i, node.sum);
    while (!open.empty() && open.back().width == node.width) {
      std::vector<float>& left = open.back().sum;
      std::transform(left.begin(), left.end(), node.sum.begin(), left.begin(), std::plus<>());
      spare_.push_back(std::move(node.sum));
      node = {node.width * 2, std::move(left)};
      open.pop_back();
    }
    open.push_back(std::move(node));
  }
  MUSTER_CHECK(open.size() == 1);
  return std::move(open.front().sum);
}

absl::Status GradientSum::reduce(Collectives& group, std::uint64_t leaf_count) {
  if (!deterministic_) {
    return all_reduce_sum(group, sum_, wire_, numerics::kNormBlock, layout_.hash);
  }
  const std::vector<std::span<const float>> parts(subtrees_.begin(), subtrees_.end());
  const absl::Status status =
      all_reduce_tree(group, leaf_count, parts, sum_, numerics::kNormBlock, layout_.hash);
  for (std::vector<float>& subtree : std::exchange(subtrees_, {})) {
    spare_.push_back(std::move(subtree));
  }
  return status;
}

}  // namespace muster::runtime
