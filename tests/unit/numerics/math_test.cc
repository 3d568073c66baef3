// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/numerics/math.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "worker_runtime/numerics/philox.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime::numerics {
namespace {

// Distance in units of the last place of the exact result's FP32 neighbourhood.
double ulps(float got, double exact) {
  const float near = static_cast<float>(exact);
  const float next = std::nextafter(std::fabs(near), std::numeric_limits<float>::infinity());
  const double unit = static_cast<double>(next) - static_cast<double>(std::fabs(near));
  return std::fabs(static_cast<double>(got) - exact) / unit;
}

TEST_CASE("exp is within one unit of the last place, down to subnormal results") {
  double worst = 0;
  for (int i = -103000; i <= 88700; ++i) {
    const float x = static_cast<float>(i) / 1000.0F;
    worst = std::max(worst, ulps(exp(x), std::exp(static_cast<double>(x))));
  }
  CHECK(worst < 1.0);
  CHECK(exp(0.0F) == 1.0F);
  CHECK(exp(-200.0F) == 0.0F);
  CHECK(exp(-std::numeric_limits<float>::infinity()) == 0.0F);
  CHECK(exp(200.0F) == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("log is within one unit of the last place, from subnormals up") {
  double worst = 0;
  for (std::uint32_t raw = 1; raw < 0x7f800000U; raw += 5003) {
    const float x = from_bits(raw);
    worst = std::max(worst, ulps(log(x), std::log(static_cast<double>(x))));
  }
  for (std::uint32_t raw = bits_of(0.5F); raw < bits_of(2.0F); raw += 101) {
    const float x = from_bits(raw);
    if (x != 1.0F) worst = std::max(worst, ulps(log(x), std::log(static_cast<double>(x))));
  }
  CHECK(worst < 1.0);
  CHECK(log(1.0F) == 0.0F);
  CHECK(log(0.0F) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(log(-1.0F)));
  CHECK(log(std::numeric_limits<float>::infinity()) == std::numeric_limits<float>::infinity());
}

TEST_CASE("sine and cosine of turns") {
  double worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const float u = static_cast<float>(i) / 100000.0F;
    const SinCos got = sin_cos_turns(u);
    const double angle = 2 * 3.14159265358979323846 * static_cast<double>(u);
    worst = std::max(worst, std::fabs(static_cast<double>(got.sin) - std::sin(angle)));
    worst = std::max(worst, std::fabs(static_cast<double>(got.cos) - std::cos(angle)));
  }
  CHECK(worst < 2e-7);
}

TEST_CASE("GELU and its slope agree with the tanh form") {
  double worst = 0;
  for (int i = -12000; i <= 12000; ++i) {
    const double x = static_cast<double>(static_cast<float>(i) / 1000.0F);
    const double root = std::sqrt(2 / 3.14159265358979323846);
    const double t = std::tanh(root * (x + 0.044715 * x * x * x));
    const double slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 0.134145 * x * x);
    const float wide = static_cast<float>(x);
    worst = std::max(worst,
                     std::fabs(static_cast<double>(gelu<float, float>(wide)) - 0.5 * x * (1 + t)));
    worst = std::max(worst, std::fabs(static_cast<double>(gelu_slope<float, float>(wide)) - slope));
  }
  CHECK(worst < 2e-6);
  CHECK(gelu<float, float>(-1e5F) == 0.0F);
  CHECK(gelu<float, float>(1e5F) == 1e5F);
}

TEST_CASE("Philox gives the published answers") {
  const auto equal = [](const Philox& got, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                        std::uint32_t d) {
    return got.word[0] == a && got.word[1] == b && got.word[2] == c && got.word[3] == d;
  };
  CHECK(equal(philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  const std::uint64_t ones = ~std::uint64_t{0};
  CHECK(equal(philox(ones, ones, ones), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  CHECK(equal(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09,
              0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST_CASE("normal numbers have the moments and the tails of a normal distribution") {
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  int beyond_two = 0;
  constexpr int kPairs = 200000;
  for (int i = 0; i < kPairs; ++i) {
    const Philox bits = philox(7, static_cast<std::uint64_t>(i), 3);
    const NormalPair pair = normal_pair(bits.word[0], bits.word[1]);
    for (const double x : {static_cast<double>(pair.first), static_cast<double>(pair.second)}) {
      sum += x;
      squares += x * x;
      fourth += x * x * x * x;
      beyond_two += std::fabs(x) > 2;
    }
  }
  constexpr double kCount = 2.0 * kPairs;
  CHECK(std::fabs(sum / kCount) < 0.006);
  CHECK(std::fabs(squares / kCount - 1) < 0.01);
  CHECK(std::fabs(fourth / kCount - 3) < 0.08);
  CHECK(std::fabs(beyond_two / kCount - 0.0455) < 0.0015);
}

TEST_CASE("sums run in sixteen lanes and one tree") {
  // With lanes 0 … 15 = 2^60, 1, … a different order would lose the ones differently.
  float lanes[16];
  for (int l = 0; l < 16; ++l)
    lanes[l] = l == 0 ? 0x1p24F : 1.0F;
  // (l, l + 8): 2^24 + 1 stays 2^24, all others 2; then 4s: 2^24 + 2, …: exact from there.
  CHECK(tree_sum(lanes) == 0x1p24F + 14.0F);
  std::vector<float> x(kNormBlock - 5);
  long double exact = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = uniform(philox(1, i, 0).word[0]) * 1e15F;
    exact += static_cast<long double>(x[i]) * static_cast<long double>(x[i]);
  }
  const double got = square_sum(x.data(), x.size());
  CHECK(std::fabs(static_cast<double>(static_cast<long double>(got) / exact) - 1) < 1e-13);
}

}  // namespace
}  // namespace muster::runtime::numerics
