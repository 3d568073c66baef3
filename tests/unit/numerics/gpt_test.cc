// SPDX-License-Identifier: Apache-2.0
//
// The model as the training loop sees it: formats, shapes with tails, bits, errors.
#include "worker_runtime/model/gpt.h"

#include <omp.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/numerics/random.h"
#include "worker_runtime/optim/optimizer.h"

namespace muster::runtime {
namespace {

std::unique_ptr<Gpt> make(const GptConfig& config, Precision precision, std::int64_t batch,
                          std::uint64_t seed = 1) {
  auto gpt = make_gpt(config, precision, batch);
  REQUIRE(gpt.ok());
  const FlatLayout layout = flat_layout(config);
  std::vector<float> master(layout.size);
  initialise(config, layout, seed, master);
  (*gpt)->load_weights(master);
  return std::move(*gpt);
}

const GptConfig kSmall{.n_layer = 2, .n_head = 2, .n_embd = 40, .n_ctx = 24, .vocab_size = 61};
const Precision kAll[] = {Precision::kF32, Precision::kBf16, Precision::kF16};

TEST_CASE("an untrained model loses about log(vocabulary) a token") {
  const auto tokens = random_tokens(4 * 25, 1, 61);
  for (const Precision precision : kAll) {
    const auto gpt = make(kSmall, precision, 4);
    CHECK(gpt->forward(tokens, 4, 24) / 96 == Approx(std::log(61.0)).epsilon(0.02));
  }
}

TEST_CASE("equal inputs give equal bits, in one object and in two, whatever OpenMP is told") {
  const auto tokens = random_tokens(4 * 25, 1, 61);
  const std::size_t size = flat_layout(kSmall).size;
  for (const Precision precision : kAll) {
    const auto first = make(kSmall, precision, 4);
    std::vector<float> a(size), b(size), c(size);
    const double loss = first->forward_backward(tokens, 4, 24, 2.0F, a);
    CHECK(first->forward_backward(tokens, 4, 24, 2.0F, b) == loss);
    CHECK(same_bits(a, b));
    const int threads = omp_get_max_threads();
    omp_set_num_threads(3);
    const auto second = make(kSmall, precision, 7);  // another room, another thread count
    CHECK(second->forward_backward(tokens, 4, 24, 2.0F, c) == loss);
    CHECK(omp_get_max_threads() == 3);  // the caller's setting is left alone
    omp_set_num_threads(threads);
    CHECK(same_bits(a, c));
    CHECK(first->forward(tokens, 4, 24) == loss);
  }
}

TEST_CASE("ranks that are threads of one process do not disturb each other") {
  const auto tokens = random_tokens(4 * 25, 1, 61);
  const std::size_t size = flat_layout(kSmall).size;
  const auto gpt = make(kSmall, Precision::kBf16, 4);
  std::vector<float> alone(size);
  gpt->forward_backward(tokens, 4, 24, 2.0F, alone);
  std::vector<std::vector<float>> results(3, std::vector<float>(size));
  std::vector<std::unique_ptr<Gpt>> models;  // built here, used elsewhere
  for (std::size_t r = 0; r < results.size(); ++r)
    models.push_back(make(kSmall, Precision::kBf16, 4));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < results.size(); ++r) {
    threads.emplace_back([&, r] {
      for (int i = 0; i < 5; ++i) {
        std::fill(results[r].begin(), results[r].end(), 0.0F);
        models[r]->forward_backward(tokens, 4, 24, 2.0F, results[r]);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& result : results)
    CHECK(same_bits(result, alone));
}

#if defined(__x86_64__)
TEST_CASE("flush-to-zero of the calling thread changes nothing") {
  const auto tokens = random_tokens(25, 1, 61);
  const std::size_t size = flat_layout(kSmall).size;
  // So small a scale that gradients are subnormal.
  std::vector<float> a(size), b(size);
  const auto gpt = make(kSmall, Precision::kF32, 1);
  gpt->forward_backward(tokens, 1, 24, 1e-37F, a);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);
  gpt->forward_backward(tokens, 1, 24, 1e-37F, b);
  CHECK((_mm_getcsr() & 0x8040U) == 0x8040U);
  _mm_setcsr(before);
  CHECK(same_bits(a, b));
  bool subnormal = false;
  for (const float x : a)
    subnormal = subnormal || std::fpclassify(x) == FP_SUBNORMAL;
  CHECK(subnormal);
}
#endif

TEST_CASE("accumulating micro-batches adds their gradients in order, bit for bit") {
  const auto tokens = random_tokens(4 * 25, 1, 61);
  const std::span<const std::int32_t> all(tokens);
  const std::size_t size = flat_layout(kSmall).size;
  for (const Precision precision : kAll) {
    const auto gpt = make(kSmall, precision, 2);
    std::vector<float> together(size), first(size), second(size);
    gpt->forward_backward(all.first(50), 2, 24, 1.0F, together);
    gpt->forward_backward(all.last(50), 2, 24, 1.0F, together);
    gpt->forward_backward(all.first(50), 2, 24, 1.0F, first);
    gpt->forward_backward(all.last(50), 2, 24, 1.0F, second);
    for (std::size_t i = 0; i < size; ++i)
      first[i] += second[i];
    CHECK(same_bits(together, first));
  }
}

TEST_CASE("a batch is the sum of its sequences") {
  const auto tokens = random_tokens(3 * 25, 1, 61);
  const std::span<const std::int32_t> all(tokens);
  const std::size_t size = flat_layout(kSmall).size;
  const auto gpt = make(kSmall, Precision::kF32, 3);
  std::vector<float> whole(size), parts(size);
  double loss = gpt->forward_backward(all, 3, 24, 1.0F, whole);
  for (std::size_t b = 0; b < 3; ++b)
    loss -= gpt->forward_backward(all.subspan(b * 25, 25), 1, 24, 1.0F, parts);
  CHECK(std::fabs(loss) < 1e-4);
  double worst = 0;
  for (std::size_t i = 0; i < size; ++i)
    worst = std::max(worst, static_cast<double>(std::fabs(whole[i] - parts[i])));
  CHECK(worst < 1e-4);
}

struct Comparison {
  double cosine;
  double norm_ratio;
  double loss_ratio;
};
Comparison compare(const GptConfig& config, Precision precision, std::int64_t batch,
                   std::int64_t time, float scale) {
  const auto tokens =
      random_tokens(static_cast<std::size_t>(batch * (time + 1)), 3, config.vocab_size);
  const std::size_t size = flat_layout(config).size;
  std::vector<float> exact(size), got(size);
  const double loss =
      make(config, Precision::kF32, batch)->forward_backward(tokens, batch, time, 1.0F, exact);
  const double other =
      make(config, precision, batch)->forward_backward(tokens, batch, time, scale, got);
  double cross = 0, a = 0, b = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const double x = static_cast<double>(exact[i]);
    const double y = static_cast<double>(got[i]) / static_cast<double>(scale);
    cross += x * y;
    a += x * x;
    b += y * y;
  }
  return {cross / std::sqrt(a * b), std::sqrt(b / a), other / loss};
}

TEST_CASE("16-bit formats stay close to FP32, also in shapes with tails") {
  const std::pair<GptConfig, std::pair<int, int>> shapes[] = {
      {kSmall, {4, 24}},
      {{.n_layer = 1, .n_head = 1, .n_embd = 7, .n_ctx = 1, .vocab_size = 3}, {1, 1}},
      {{.n_layer = 3, .n_head = 3, .n_embd = 33, .n_ctx = 19, .vocab_size = 257}, {2, 17}},
      {{.n_layer = 1, .n_head = 5, .n_embd = 85, .n_ctx = 100, .vocab_size = 2}, {1, 100}}};
  for (const auto& [config, sizes] : shapes) {
    CAPTURE(config.n_embd, sizes.second);
    const Comparison half = compare(config, Precision::kF16, sizes.first, sizes.second, 64.0F);
    CHECK(half.cosine > 0.9999);
    CHECK(half.norm_ratio == Approx(1).epsilon(3e-3));
    CHECK(half.loss_ratio == Approx(1).epsilon(1e-3));
    const Comparison brain = compare(config, Precision::kBf16, sizes.first, sizes.second, 1.0F);
    CHECK(brain.cosine > 0.999);
    CHECK(brain.norm_ratio == Approx(1).epsilon(2e-2));
    CHECK(brain.loss_ratio == Approx(1).epsilon(5e-3));
  }
}

TEST_CASE("a loss scale that overflows fp16 shows in the gradients, and the next step is clean") {
  const auto tokens = random_tokens(25, 1, 61);
  const FlatLayout layout = flat_layout(kSmall);
  std::vector<float> gradients(layout.size);
  const auto gpt = make(kSmall, Precision::kF16, 1);
  const double loss = gpt->forward_backward(tokens, 1, 24, 1e6F, gradients);
  CHECK(std::isfinite(loss));
  CHECK(first_non_finite(layout, 0, gradients) != kAllFinite);
  std::fill(gradients.begin(), gradients.end(), 0.0F);
  CHECK(gpt->forward_backward(tokens, 1, 24, 1.0F, gradients) == loss);
  CHECK(first_non_finite(layout, 0, gradients) == kAllFinite);
}

TEST_CASE("padding and unused rows get no gradient") {
  const FlatLayout layout = flat_layout(kSmall);
  std::vector<float> gradients(layout.size);
  const std::vector<std::int32_t> tokens = {5, 6, 7, 5};
  make(kSmall, Precision::kF32, 1)->forward_backward(tokens, 1, 3, 1.0F, gradients);
  std::size_t at = 0;
  for (const TensorInfo& tensor : layout.tensors) {
    for (; at < tensor.offset; ++at)
      REQUIRE(gradients[at] == 0.0F);
    at = tensor.offset + tensor.count;
  }
  const TensorInfo* wpe = layout.find("wpe.weight");
  CHECK(gradients[wpe->offset + 2 * 40] != 0.0F);
  for (std::size_t i = 3 * 40; i < wpe->count; ++i)
    REQUIRE(gradients[wpe->offset + i] == 0.0F);
}

TEST_CASE("configurations that make no model are refused by name") {
  const auto refused = [](GptConfig config, const char* name, std::int64_t batch = 1) {
    const auto gpt = make_gpt(config, Precision::kF32, batch);
    REQUIRE_FALSE(gpt.ok());
    CHECK(gpt.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(gpt.status().message()), Catch::Contains(name));
  };
  GptConfig config = kSmall;
  config.n_embd = 41;
  refused(config, "n_embd");
  config = kSmall;
  config.n_head = 0;
  refused(config, "n_head");
  config = kSmall;
  config.vocab_size = -1;
  refused(config, "vocab_size");
  config = kSmall;
  config.n_layer = std::int64_t{1} << 40;
  refused(config, "n_layer");
  config = kSmall;
  config.n_embd = 1 << 24;
  config.n_head = 1;
  refused(config, "too large");
  refused(kSmall, "max_batch", 0);
}

}  // namespace
}  // namespace muster::runtime
