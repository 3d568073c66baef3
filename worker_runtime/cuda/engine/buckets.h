// SPDX-License-Identifier: Apache-2.0
//
// How the flat gradient is cut for its way to the other ranks: contiguous pieces that fill in the
// order of the backward pass, so that each leaves while the rest is still being computed.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "worker_runtime/model/gpt.h"

namespace muster::runtime::cuda {

struct Bucket {
  std::size_t offset = 0;  // elements; a multiple of numerics::kNormBlock
  std::size_t count = 0;
  std::size_t end() const { return offset + count; }
  bool operator==(const Bucket&) const = default;
};

// Elements a bucket has at least; the first may be small, so that the wire is busy early.
struct BucketSizes {
  std::size_t first = std::size_t{1} << 20U;
  std::size_t others = std::size_t{8} << 20U;
};

// All of the layout, by offset. The token embedding, whose gradient is complete last, is alone in
// the last bucket, but for what shares its first norm block.
std::vector<Bucket> cut_buckets(const FlatLayout& layout, const BucketSizes& sizes);

}  // namespace muster::runtime::cuda
