// SPDX-License-Identifier: Apache-2.0
//
// Finite checks find the first bad element; norms and AdamW have the CPU's bits; stochastic
// rounding takes one of the two neighbours, on average the number itself.
#include "worker_runtime/cuda/kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/orders.h"
#include "tests/unit/cuda/shapes.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/numerics/stochastic.h"

namespace muster::runtime::cuda {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::size_t kCounts[] = {1, 7, 8, 2047, 2049, 16383, 16384, 16385, 40001};

std::vector<std::size_t> counts() {
  std::vector<std::size_t> all(std::begin(kCounts), std::end(kCounts));
  for (std::uint64_t i = 0; i < 6; ++i)
    all.push_back(random_size(77, i, 40000));
  return all;
}

struct Checked {
  std::vector<double> square_sums;
  std::vector<std::uint64_t> bad;
  std::uint64_t lowest;
};

Checked check_norm(const float* gradients, std::size_t count, std::uint64_t first) {
  const Grid grid = CheckNorm::grid(count);
  Checked result{std::vector<double>(grid.x), std::vector<std::uint64_t>(grid.x), 0};
  run_in_all_orders<CheckNorm>(
      grid, {gradients, result.square_sums.data(), result.bad.data(), count, first},
      {written(result.square_sums), written(result.bad)});
  std::vector<std::uint64_t> lowest(1);
  run_in_all_orders<LowestIndex>(LowestIndex::grid(),
                                 {result.bad.data(), lowest.data(), result.bad.size(), 0},
                                 {written(lowest)});
  result.lowest = lowest[0];
  return result;
}

// Coefficients of a step in the middle of a run.
numerics::AdamWCoefficients coefficients() {
  return numerics::adamw_coefficients({.learning_rate = 3e-3, .weight_decay = 0.1}, 17, 0.37);
}

template <class S>
struct Parameters {
  std::vector<float> gradients, master, first, second;
  std::vector<S> copy;
  Parameters(std::size_t count, std::uint64_t seed)
      : gradients(random_values<float>(count, seed)),
        master(random_values<float>(count, seed + 1, 0.1F)),
        first(random_values<float>(count, seed + 2, 0.01F)),
        second(random_values<float>(count, seed + 3, 0.01F)),
        copy(random_values<S>(count, seed + 4)) {
    for (float& x : second)
      x = x * x;
  }
  std::size_t count() const { return master.size(); }
};

template <class S, bool kByChance>
void run(Parameters<S>& p, const UpdateState& state, bool decay, std::size_t shift,
         std::uint64_t offset) {
  run_in_all_orders<AdamW<S, kByChance>>(
      element_grid(p.count() - shift),
      {&state, p.gradients.data() + shift, p.master.data() + shift, p.first.data() + shift,
       p.second.data() + shift, p.copy.data() + shift, p.count() - shift, offset, decay ? 1U : 0U},
      {written(p.master), written(p.first), written(p.second), written(p.copy)});
}

template <class S>
void check_adamw(std::size_t count, bool decay, std::size_t shift, std::uint64_t seed) {
  Parameters<S> got(count, seed);
  Parameters<S> want = got;
  const UpdateState state{.coefficients = coefficients()};
  run<S, false>(got, state, decay, shift, 0);
  flat_kernels(Isa::kPortable)
      .adamw(state.coefficients, decay, want.gradients.data() + shift, want.master.data() + shift,
             want.first.data() + shift, want.second.data() + shift, count - shift);
  kernels<S>(Isa::kPortable)
      .narrow(want.master.data() + shift, want.copy.data() + shift, count - shift);
  CHECK(same_bits(got.master, want.master));
  CHECK(same_bits(got.first, want.first));
  CHECK(same_bits(got.second, want.second));
  CHECK(same_bits(got.copy, want.copy));
}

template <class S>
S by_chance(float x, std::uint32_t word) {
  if constexpr (std::is_same_v<S, Bf16>) {
    return numerics::to_bf16_by_chance(x, word);
  } else {
    return numerics::to_f16_by_chance(x, word);
  }
}

// How often of `draws` the mean of the rounded number may stray: five standard deviations of a
// binomial one, whose variance is at most a quarter of the neighbours' distance squared.
template <class S>
void check_unbiased(float x) {
  constexpr std::size_t kDraws = 40000;
  const auto below = static_cast<double>(to_number(by_chance<S>(std::abs(x), 0xffffffffU)));
  const auto above = static_cast<double>(to_number(by_chance<S>(std::abs(x), 0U)));
  const auto magnitude = static_cast<double>(std::abs(x));
  CHECK(below <= magnitude);
  CHECK(above >= magnitude);
  // They are neighbours in S: nothing rounds to what lies between.
  CHECK(std::isfinite(above));
  const float middle = static_cast<float>((below + above) / 2);
  const auto nearest = static_cast<double>(rounded<S>(middle));
  CHECK((nearest == below || nearest == above));

  double sum = 0;
  for (std::size_t i = 0; i < kDraws; ++i) {
    const numerics::Philox words = numerics::rounding_words(3, 9, 4 * i);
    const auto got = static_cast<double>(to_number(by_chance<S>(x, words.word[i % 4])));
    REQUIRE((std::abs(got) == below || std::abs(got) == above));
    REQUIRE(std::signbit(got) == std::signbit(x));
    sum += got;
  }
  const double bound = 5 * 0.5 * (above - below) / std::sqrt(static_cast<double>(kDraws));
  CHECK(std::abs(sum / kDraws - static_cast<double>(x)) <= bound);
}

}  // namespace

TEST_CASE("squared norms of blocks have the CPU's bits") {
  for (const std::size_t count : counts()) {
    for (const std::size_t shift : {0U, 1U}) {
      CAPTURE(count, shift);
      const auto gradients = random_values<float>(count + shift, count);
      const Checked got = check_norm(gradients.data() + shift, count, 3 * numerics::kNormBlock);
      std::vector<double> want;
      for (std::size_t i = 0; i < count; i += numerics::kNormBlock) {
        want.push_back(flat_kernels(Isa::kPortable)
                           .square_sum(gradients.data() + shift + i,
                                       std::min(numerics::kNormBlock, count - i)));
      }
      CHECK(same_bits(got.square_sums, want));
      CHECK(got.bad == std::vector<std::uint64_t>(want.size(), kNoIndex));
      CHECK(got.lowest == kNoIndex);
    }
  }
}

TEST_CASE("the first element that is not finite is found") {
  const std::size_t count = 40001;
  const std::uint64_t first = 5 * numerics::kNormBlock;
  for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity}) {
    for (const std::size_t at : {0U, 3U, 1024U, 2047U, 2048U, 16383U, 16384U, 32767U, 40000U}) {
      CAPTURE(bad, at);
      auto gradients = random_values<float>(count, 4);
      gradients[at] = bad;
      for (const std::size_t later : {1U, 2U, 8U, 1500U, 20000U}) {
        if (at + later < count) gradients[at + later] = kNaN;
      }
      const Checked got = check_norm(gradients.data(), count, first);
      CHECK(got.lowest == first + at);
      for (std::size_t block = 0; block < got.bad.size(); ++block) {
        std::uint64_t want = kNoIndex;
        const std::size_t end = std::min(count, (block + 1) * numerics::kNormBlock);
        for (std::size_t i = end; i-- > block * numerics::kNormBlock;)
          want = std::isfinite(gradients[i]) ? want : first + i;
        CHECK(got.bad[block] == want);
        CHECK(std::isfinite(got.square_sums[block]) == (want == kNoIndex));
      }
    }
  }
  // The largest numbers are finite, and so are their squares in FP64.
  std::vector<float> large(100, std::numeric_limits<float>::max());
  large[50] = std::numeric_limits<float>::denorm_min();
  const Checked got = check_norm(large.data(), large.size(), 0);
  CHECK(got.lowest == kNoIndex);
  CHECK(std::isfinite(got.square_sums[0]));
}

TEST_CASE("the lowest of many indices, and of an earlier one") {
  for (const std::size_t count : {0U, 1U, 17U, 255U, 256U, 257U, 5000U}) {
    CAPTURE(count);
    std::vector<std::uint64_t> indices(count, kNoIndex);
    for (std::size_t i = 0; i < count; ++i)
      indices[i] = (std::uint64_t{1} << 40) + (i * 7919 + 5) % count;
    for (const unsigned keep : {0U, 1U}) {
      std::vector<std::uint64_t> lowest{12};
      run_in_all_orders<LowestIndex>(
          LowestIndex::grid(), {indices.data(), lowest.data(), count, keep}, {written(lowest)});
      const std::uint64_t want = count == 0 ? kNoIndex : std::uint64_t{1} << 40;
      CHECK(lowest[0] == (keep == 1 ? 12 : want));
    }
  }
}

TEMPLATE_TEST_CASE("AdamW has the CPU's bits", "", float, Bf16, F16) {
  std::uint64_t seed = 1;
  for (const std::size_t count : counts()) {
    for (const std::size_t shift : {0U, 3U}) {
      if (count <= shift) continue;
      CAPTURE(count, shift);
      check_adamw<TestType>(count, false, shift, seed += 5);
      check_adamw<TestType>(count, true, shift, seed);
    }
  }
}

TEST_CASE("a skipped update writes nothing, and masters need no copy") {
  Parameters<Bf16> p(5000, 3);
  const Parameters<Bf16> before = p;
  run<Bf16, false>(p, {.coefficients = coefficients(), .skip = 1}, true, 0, 0);
  CHECK(same_bits(p.master, before.master));
  CHECK(same_bits(p.first, before.first));
  CHECK(same_bits(p.second, before.second));
  CHECK(same_bits(p.copy, before.copy));

  Parameters<Bf16> with_copy = before;
  const UpdateState state{.coefficients = coefficients()};
  run<Bf16, false>(with_copy, state, true, 0, 0);
  run_in_all_orders<AdamW<float>>(element_grid(p.count()),
                                  {&state, p.gradients.data(), p.master.data(), p.first.data(),
                                   p.second.data(), nullptr, p.count(), 0, 1},
                                  {written(p.master), written(p.first), written(p.second)});
  CHECK(same_bits(p.master, with_copy.master));
}

TEMPLATE_TEST_CASE("a copy rounded by chance depends on key, update and element", "", Bf16, F16) {
  const UpdateState state{.coefficients = coefficients(), .rounding_key = 77, .update = 5};
  const Parameters<TestType> start(4001, 9);
  Parameters<TestType> whole = start;
  run<TestType, true>(whole, state, true, 0, 640);
  std::size_t not_nearest = 0;
  for (std::size_t i = 0; i < whole.count(); ++i) {
    const std::uint32_t word = numerics::rounding_words(77, 5, 640 + i).word[i % 4];
    REQUIRE(whole.copy[i].bits == by_chance<TestType>(whole.master[i], word).bits);
    not_nearest += whole.copy[i].bits != stored<TestType>(whole.master[i]).bits ? 1U : 0U;
  }
  CHECK(not_nearest > whole.count() / 8);  // a quarter is expected
  CHECK(not_nearest < whole.count() / 2);

  // A shard that starts elsewhere draws the same, misaligned or not; another update does not.
  const std::size_t shift = 204;
  Parameters<TestType> part = start;
  run<TestType, true>(part, state, true, shift, 640 + shift);
  CHECK(std::equal(part.copy.begin() + shift, part.copy.end(), whole.copy.begin() + shift,
                   [](TestType a, TestType b) { return a.bits == b.bits; }));
  Parameters<TestType> again = start;
  run<TestType, true>(again, {.coefficients = coefficients(), .rounding_key = 77, .update = 6},
                      true, 0, 640);
  CHECK(same_bits(again.master, whole.master));
  CHECK_FALSE(same_bits(again.copy, whole.copy));
}

TEMPLATE_TEST_CASE("rounding by chance is right on average", "", Bf16, F16) {
  for (const float x : {1.0F + 0x1p-12F, 1.001F, -3.14159F, 0.1F, 1234.567F, -0x1.fffffep3F,
                        6.2e-5F, 3.3e-6F, -1.234e-7F, 5e-8F, 2e-8F, 7e-9F}) {
    CAPTURE(x);
    check_unbiased<TestType>(x);
  }
  // What S holds stays, and so do infinities and NaN.
  for (const std::uint32_t word : {0U, 1U, 0x80000000U, 0xffffffffU}) {
    for (const float x : {0.0F, -0.0F, 1.0F, -2.5F, 0x1p-24F, 0x1.8p-15F, kInfinity, -kInfinity}) {
      const float kept = to_number(by_chance<TestType>(x, word));
      CHECK(numerics::bits_of(kept) == numerics::bits_of(x));
    }
    CHECK(std::isnan(to_number(by_chance<TestType>(kNaN, word))));
  }
  CHECK(to_number(numerics::to_f16_by_chance(65504.0F, 0U)) == 65504.0F);
  CHECK(to_number(numerics::to_f16_by_chance(65535.0F, 0xffffffffU)) == 65504.0F);
  CHECK(to_number(numerics::to_f16_by_chance(65535.0F, 0U)) == kInfinity);
  CHECK(to_number(numerics::to_f16_by_chance(1e30F, 0xffffffffU)) == kInfinity);
  CHECK(to_number(numerics::to_f16_by_chance(1e-30F, 0U)) == 0.0F);
}

}  // namespace muster::runtime::cuda
