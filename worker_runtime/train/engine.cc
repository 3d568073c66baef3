// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/engine.h"

#include <algorithm>

#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime {

BlockRange own_blocks(std::size_t elements, int size, int rank) {
  const std::size_t blocks = (elements + numerics::kNormBlock - 1) / numerics::kNormBlock;
  const LeafRange range = leaf_range(blocks, size, rank);
  const std::size_t begin = range.first * numerics::kNormBlock;
  const std::size_t end = std::min(elements, (range.first + range.count) * numerics::kNormBlock);
  if (begin >= end) return {};
  return {begin, end - begin};
}

WireType wire_type(const ParallelConfig& parallel) {
  if (parallel.wire_dtype == "bf16") return WireType::kBf16;
  return parallel.wire_dtype == "fp16" ? WireType::kF16 : WireType::kF32;
}

}  // namespace muster::runtime
