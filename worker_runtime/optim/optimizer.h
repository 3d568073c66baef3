// SPDX-License-Identifier: Apache-2.0
//
// What happens to a reduced gradient, over flat arrays or any part of them: finite check, squared
// norm by logical blocks, clip factor, AdamW. A part is given by its offset in the flat layout
// (elements); all spans of one call have the same length.
//
// Thread rule: free functions without state; one thread a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "worker_runtime/model/gpt.h"
#include "worker_runtime/numerics/adamw.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime {

inline constexpr std::uint64_t kAllFinite = std::numeric_limits<std::uint64_t>::max();

// Index in layout.tensors of the tensor in whose padded range the flat element `at` lies.
// REQUIRES: at < layout.size.
std::size_t tensor_at(const FlatLayout& layout, std::size_t at);

// Index in layout.tensors of the first tensor with a non-finite element in
// [offset, offset + gradients.size()), or kAllFinite.
std::uint64_t first_non_finite(const FlatLayout& layout, std::size_t offset,
                               std::span<const float> gradients);

// FP64 squared norms of the logical blocks (numerics::kNormBlock elements) of a part that starts
// on a block border; the last block may be short. Their sum, in block order over the whole
// layout, does not depend on how the layout was cut.
// REQUIRES: offset is a multiple of numerics::kNormBlock.
std::vector<double> square_norm_partials(std::size_t offset, std::span<const float> gradients);

// sqrt of the sum in the given order, times `factor` (1 / loss scale).
double norm_of_partials(std::span<const double> partials, double factor);

// What to multiply an unscaled gradient by so that its norm is at most max_norm (DeepSpeed's rule,
// 1e-6 included); 1 when max_norm is 0 (no clipping). REQUIRES: norm is finite.
double clip_factor(double norm, double max_norm);

// One AdamW update of [offset, offset + parameters.size()). `update` counts applied updates from 1.
// `gradient_factor`: unscale times clip. Weight decay applies where the layout says so.
void adamw_step(const AdamWOptions& options, std::uint64_t update, double gradient_factor,
                const FlatLayout& layout, std::size_t offset, std::span<const float> gradients,
                std::span<float> parameters, std::span<float> first_moments,
                std::span<float> second_moments);

}  // namespace muster::runtime
