// SPDX-License-Identifier: Apache-2.0
//
// The whole model's backward pass: its FP64 instance against finite differences, and the same
// code in FP32 on every instruction set against itself, bit for bit.
#include <algorithm>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/numerics/random.h"
#include "worker_runtime/model/gpt_model.h"

namespace muster::runtime {
namespace {

template <class S>
GptModel<S, OwnProducts<S>> own_model(const GptConfig& config, std::int64_t batch, Isa isa) {
  return {config, batch, isa, OwnProducts<S>(isa)};
}

TEST_CASE("gradients of the whole model equal finite differences in every parameter") {
  const GptConfig config{.n_layer = 2, .n_head = 2, .n_embd = 6, .n_ctx = 5, .vocab_size = 11};
  auto model = own_model<double>(config, 2, Isa::kPortable);
  const FlatLayout& layout = model.layout();
  auto weights = random_values<double>(layout.size, 1, 0.4F);
  const auto tokens = random_tokens(2 * 5, 2, config.vocab_size);  // two sequences of four
  std::vector<double> gradients(layout.size);
  constexpr double kScale = 3;
  model.load_weights(weights);
  const double loss = model.run(tokens, 2, 4, kScale, gradients.data());
  CHECK(loss == model.run(tokens, 2, 4, kScale, nullptr));
  double worst = 0;
  double largest = 0;
  const auto loss_at = [&](std::size_t i, double x) {
    weights[i] = x;
    model.load_weights(weights);
    return kScale * model.run(tokens, 2, 4, 1, nullptr);
  };
  for (const TensorInfo& tensor : layout.tensors) {
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      const double middle = weights[i];
      constexpr double kStep = 1e-5;
      const double slope = (loss_at(i, middle + kStep) - loss_at(i, middle - kStep)) / (2 * kStep);
      weights[i] = middle;
      worst = std::max(worst, std::fabs(slope - gradients[i]));
      largest = std::max(largest, std::fabs(slope));
    }
  }
  CHECK(largest > 1);
  CHECK(worst < 1e-6);
}

TEMPLATE_TEST_CASE("the model has the same bits on all instruction sets", "", float, Bf16, F16) {
  const GptConfig config{.n_layer = 2, .n_head = 3, .n_embd = 39, .n_ctx = 70, .vocab_size = 53};
  const auto weights = random_values<float>(flat_layout(config).size, 1, 0.1F);
  const auto tokens = random_tokens(3 * 71, 2, config.vocab_size);
  std::vector<float> expected;
  double expected_loss = 0;
  for (const Isa isa : supported_isas()) {
    CAPTURE(isa_name(isa));
    auto model = own_model<TestType>(config, 3, isa);
    model.load_weights(weights);
    std::vector<float> gradients(weights.size());
    const double loss = model.run(tokens, 3, 70, 8.0F, gradients.data());
    if (expected.empty()) {
      expected = gradients;
      expected_loss = loss;
    }
    CHECK(loss == expected_loss);
    CHECK(same_bits(gradients, expected));
  }
}

TEST_CASE("a head in slices of rows gives the gradient of the whole") {
  const GptConfig config{.n_layer = 1, .n_head = 1, .n_embd = 4, .n_ctx = 15, .vocab_size = 23};
  // 45 rows in slices of 16; sequences alone fit into one.
  GptModel<double, OwnProducts<double>> model(config, 3, Isa::kPortable,
                                              OwnProducts<double>(Isa::kPortable), 16 * 23);
  const auto weights = random_values<double>(model.layout().size, 1, 0.3F);
  const auto tokens = random_tokens(3 * 16, 2, config.vocab_size);
  model.load_weights(weights);
  std::vector<double> whole(weights.size()), parts(weights.size());
  double loss = model.run(tokens, 3, 15, 1, whole.data());
  const std::span<const std::int32_t> all(tokens);
  for (std::size_t b = 0; b < 3; ++b)
    loss -= model.run(all.subspan(b * 16, 16), 1, 15, 1, parts.data());
  CHECK(std::fabs(loss) < 1e-9);
  double worst = 0;
  for (std::size_t i = 0; i < whole.size(); ++i)
    worst = std::max(worst, std::fabs(whole[i] - parts[i]));
  CHECK(worst < 1e-12);
}

}  // namespace
}  // namespace muster::runtime
