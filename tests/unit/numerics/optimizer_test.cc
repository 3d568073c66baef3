// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/numerics/random.h"

namespace muster::runtime {
namespace {

const GptConfig kConfig{.n_layer = 2, .n_head = 3, .n_embd = 51, .n_ctx = 30, .vocab_size = 70};

struct Arrays {
  std::vector<float> parameters, first, second;
  explicit Arrays(std::size_t size)
      : parameters(random_values<float>(size, 1)), first(size), second(size) {}
};

TEST_CASE("AdamW equals an FP64 reference over many updates") {
  const FlatLayout layout = flat_layout(kConfig);
  AdamWOptions options{
      .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  Arrays got(layout.size);
  std::vector<double> p(got.parameters.begin(), got.parameters.end());
  std::vector<double> m(layout.size), v(layout.size);
  double worst = 0;
  for (int t = 1; t <= 50; ++t) {
    options.learning_rate = 3e-3 / t;
    const auto gradients = random_values<float>(layout.size, static_cast<std::uint64_t>(t), 8);
    adamw_step(options, static_cast<std::uint64_t>(t), 0.125, layout, 0, gradients, got.parameters,
               got.first, got.second);
    for (const TensorInfo& tensor : layout.tensors) {
      for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
        const double g = static_cast<double>(gradients[i]) * 0.125;
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        if (tensor.dims.size() > 1) p[i] -= options.learning_rate * 0.1 * p[i];
        const double m_hat = m[i] / (1 - std::pow(0.9, t));
        const double v_hat = v[i] / (1 - std::pow(0.95, t));
        p[i] -= options.learning_rate * m_hat / (std::sqrt(v_hat) + 1e-8);
        worst = std::max(worst, std::fabs(p[i] - static_cast<double>(got.parameters[i])));
      }
    }
  }
  CHECK(worst < 5e-6);
}

TEST_CASE("an update of parts equals the update of the whole, on every cut and instruction set") {
  const FlatLayout layout = flat_layout(kConfig);
  const AdamWOptions options;
  const auto gradients = random_values<float>(layout.size, 2);
  Arrays whole(layout.size);
  adamw_step(options, 3, 0.5, layout, 0, gradients, whole.parameters, whole.first, whole.second);
  for (const std::size_t step : {std::size_t{1000}, std::size_t{4099}, layout.size}) {
    Arrays parts(layout.size);
    for (std::size_t at = 0; at < layout.size; at += step) {
      const std::size_t count = std::min(step, layout.size - at);
      const auto cut = [&](std::vector<float>& x) { return std::span(x).subspan(at, count); };
      adamw_step(options, 3, 0.5, layout, at, std::span(gradients).subspan(at, count),
                 cut(parts.parameters), cut(parts.first), cut(parts.second));
    }
    CHECK(same_bits(parts.parameters, whole.parameters));
    CHECK(same_bits(parts.second, whole.second));
  }
  const auto coefficients = numerics::adamw_coefficients(options, 3, 0.5);
  Arrays reference(1003);
  flat_kernels(Isa::kPortable)
      .adamw(coefficients, true, gradients.data(), reference.parameters.data(),
             reference.first.data(), reference.second.data(), 1003);
  for (const Isa isa : supported_isas()) {
    Arrays other(1003);
    flat_kernels(isa).adamw(coefficients, true, gradients.data(), other.parameters.data(),
                            other.first.data(), other.second.data(), 1003);
    CHECK(same_bits(other.parameters, reference.parameters));
    CHECK(flat_kernels(isa).square_sum(gradients.data(), 1003) ==
          flat_kernels(Isa::kPortable).square_sum(gradients.data(), 1003));
  }
}

TEST_CASE("zero gradients and padding never move, whatever epsilon") {
  const FlatLayout layout = flat_layout(kConfig);
  const AdamWOptions options{.epsilon = 1e-12, .weight_decay = 0};
  std::vector<float> parameters(layout.size), first(layout.size), second(layout.size);
  const std::vector<float> zero(layout.size);
  for (std::uint64_t t = 1; t < 5; ++t)
    adamw_step(options, t, 1, layout, 0, zero, parameters, first, second);
  CHECK(same_bits(parameters, zero));
}

TEST_CASE("small updates move FP32 masters although bf16 weights would stand still") {
  const FlatLayout layout = flat_layout(kConfig);
  std::vector<float> parameters(layout.size, 1.0F), first(layout.size), second(layout.size);
  const std::vector<float> gradients(layout.size, 1.0F);
  const AdamWOptions options{.learning_rate = 1e-4, .weight_decay = 0};
  for (std::uint64_t t = 1; t <= 1000; ++t)
    adamw_step(options, t, 1, layout, 0, gradients, parameters, first, second);
  CHECK(parameters[0] == Approx(0.9).epsilon(1e-4));
  CHECK(numerics::to_float(numerics::to_bf16(1.0F - 1e-4F)) == 1.0F);
}

TEST_CASE("the first non-finite tensor is found from any cut") {
  const FlatLayout layout = flat_layout(kConfig);
  std::vector<float> gradients(layout.size, std::numeric_limits<float>::max());
  CHECK(first_non_finite(layout, 0, gradients) == kAllFinite);
  const std::size_t middle = layout.tensors.size() / 2;
  gradients[layout.tensors[middle].offset + 3] = std::numeric_limits<float>::quiet_NaN();
  gradients[layout.tensors[middle + 4].offset] = -std::numeric_limits<float>::infinity();
  CHECK(first_non_finite(layout, 0, gradients) == middle);
  const std::size_t cut = layout.tensors[middle].offset + 4;
  CHECK(first_non_finite(layout, cut, std::span(gradients).subspan(cut)) == middle + 4);
  CHECK(first_non_finite(layout, 0, std::span(gradients).first(cut - 1)) == kAllFinite);
}

TEST_CASE("the norm does not depend on how the layout is cut, and clipping follows DeepSpeed") {
  const FlatLayout layout = flat_layout(kConfig);
  REQUIRE(layout.size > 3 * numerics::kNormBlock);
  const auto gradients = random_values<float>(layout.size, 4, 5000);
  const auto whole = square_norm_partials(0, gradients);
  const std::size_t cut = 2 * numerics::kNormBlock;
  auto parts = square_norm_partials(0, std::span(gradients).first(cut));
  const auto rest = square_norm_partials(cut, std::span(gradients).subspan(cut));
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == whole);
  CHECK(square_norm_partials(cut, std::span(gradients).first(0)).empty());
  long double exact = 0;
  for (const float g : gradients)
    exact += static_cast<long double>(g) * static_cast<long double>(g);
  const double norm = norm_of_partials(whole, 0.25);
  CHECK(norm == Approx(0.25 * std::sqrt(static_cast<double>(exact))).epsilon(1e-13));
  CHECK(clip_factor(norm, 0) == 1.0);
  CHECK(clip_factor(0.5, 1.0) == 1.0);
  CHECK(clip_factor(4.0, 1.0) == Approx(1.0 / 4.000001).epsilon(1e-12));
  CHECK(clip_factor(4.0, 2.0) == Approx(2.0 / 4.000001).epsilon(1e-12));
  CHECK(clip_factor(4.0, 8.0) == 1.0);
}

}  // namespace
}  // namespace muster::runtime
