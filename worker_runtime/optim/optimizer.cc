// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "proto/base/check.h"
#include "worker_runtime/cpu/kernels.h"

namespace muster::runtime {
namespace {

// Calls body(tensor index, first, count) for every tensor's share of [offset, offset + size),
// padding included; first counts from `offset`.
template <class Body>
void for_tensors(const FlatLayout& layout, std::size_t offset, std::size_t size, Body body) {
  MUSTER_CHECK(offset + size <= layout.size);
  std::size_t at = 0;
  while (at < size) {
    const std::size_t tensor = tensor_at(layout, offset + at);
    const std::size_t end =
        tensor + 1 < layout.tensors.size() ? layout.tensors[tensor + 1].offset : layout.size;
    const std::size_t count = std::min(end - offset, size) - at;
    body(tensor, at, count);
    at += count;
  }
}

}  // namespace

std::size_t tensor_at(const FlatLayout& layout, std::size_t at) {
  const auto after =
      std::upper_bound(layout.tensors.begin(), layout.tensors.end(), at,
                       [](std::size_t x, const TensorInfo& tensor) { return x < tensor.offset; });
  MUSTER_CHECK(after != layout.tensors.begin());
  return static_cast<std::size_t>(after - layout.tensors.begin()) - 1;
}

std::uint64_t first_non_finite(const FlatLayout& layout, std::size_t offset,
                               std::span<const float> gradients) {
  const FlatKernels& k = flat_kernels(best_isa());
  if (k.all_finite(gradients.data(), gradients.size())) return kAllFinite;
  std::uint64_t found = kAllFinite;
  for_tensors(layout, offset, gradients.size(),
              [&](std::size_t tensor, std::size_t first, std::size_t count) {
                if (found == kAllFinite && !k.all_finite(gradients.data() + first, count))
                  found = tensor;
              });
  return found;
}

std::vector<double> square_norm_partials(std::size_t offset, std::span<const float> gradients) {
  MUSTER_CHECK(offset % numerics::kNormBlock == 0);
  const FlatKernels& k = flat_kernels(best_isa());
  std::vector<double> partials;
  partials.reserve(gradients.size() / numerics::kNormBlock + 1);
  for (std::size_t i = 0; i < gradients.size(); i += numerics::kNormBlock) {
    const std::size_t count = std::min(numerics::kNormBlock, gradients.size() - i);
    partials.push_back(k.square_sum(gradients.data() + i, count));
  }
  return partials;
}

double norm_of_partials(std::span<const double> partials, double factor) {
  double sum = 0;
  for (const double partial : partials)
    sum += partial;
  return std::sqrt(sum) * factor;
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  const double excess = (norm + 1e-6) / max_norm;
  return excess > 1 ? 1 / excess : 1;
}

void adamw_step(const AdamWOptions& options, std::uint64_t update, double gradient_factor,
                const FlatLayout& layout, std::size_t offset, std::span<const float> gradients,
                std::span<float> parameters, std::span<float> first_moments,
                std::span<float> second_moments) {
  MUSTER_CHECK(update >= 1);
  MUSTER_CHECK(gradients.size() == parameters.size());
  MUSTER_CHECK(first_moments.size() == parameters.size());
  MUSTER_CHECK(second_moments.size() == parameters.size());
  const FlatKernels& k = flat_kernels(best_isa());
  const auto coefficients = numerics::adamw_coefficients(options, update, gradient_factor);
  for_tensors(layout, offset, parameters.size(),
              [&](std::size_t tensor, std::size_t first, std::size_t count) {
                k.adamw(coefficients, layout.tensors[tensor].decay, gradients.data() + first,
                        parameters.data() + first, first_moments.data() + first,
                        second_moments.data() + first, count);
              });
}

}  // namespace muster::runtime
