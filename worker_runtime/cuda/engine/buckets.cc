// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/engine/buckets.h"

#include <algorithm>

#include "proto/base/check.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime::cuda {

std::vector<Bucket> cut_buckets(const FlatLayout& layout, const BucketSizes& sizes) {
  constexpr std::size_t kBlock = numerics::kNormBlock;
  const auto whole_blocks = [](std::size_t size) {
    return std::max<std::size_t>(1, (size + kBlock - 1) / kBlock) * kBlock;
  };
  MUSTER_CHECK(!layout.tensors.empty());
  const std::size_t last = layout.tensors.back().offset / kBlock * kBlock;
  std::vector<Bucket> buckets;
  for (std::size_t at = 0; at < last;) {
    const std::size_t size = whole_blocks(buckets.empty() ? sizes.first : sizes.others);
    buckets.push_back({at, std::min(size, last - at)});
    at = buckets.back().end();
  }
  buckets.push_back({last, layout.size - last});
  return buckets;
}

}  // namespace muster::runtime::cuda
