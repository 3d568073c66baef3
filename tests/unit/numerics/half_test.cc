// SPDX-License-Identifier: Apache-2.0
//
// Half conversions against a table of all values, in FP64.
#include "worker_runtime/numerics/half.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "worker_runtime/cpu/kernels.h"

namespace muster::runtime {
namespace {

using numerics::bits_of;
using numerics::from_bits;

// The value of a format with `mantissa` bits, by its definition.
double value_of(std::uint32_t bits, int mantissa, int bias) {
  const int exponent_bits = 15 - mantissa;
  const int exponent = static_cast<int>((bits >> mantissa) & ((1U << exponent_bits) - 1U));
  const double fraction = static_cast<double>(bits & ((1U << mantissa) - 1U));
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(fraction + std::ldexp(1.0, mantissa), exponent - bias - mantissa);
}

// Nearest, ties to even, from the sorted list of non-negative finite values (index = bits).
std::uint32_t nearest(const std::vector<double>& values, double overflow, double x) {
  const std::uint32_t sign = std::signbit(x) ? 0x8000U : 0U;
  const double magnitude = std::fabs(x);
  const auto count = static_cast<std::uint32_t>(values.size());
  if (magnitude >= overflow) return sign | count;  // infinity follows the largest value
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  const auto high = static_cast<std::uint32_t>(above - values.begin());
  if (high == count) return sign | (count - 1);
  if (*above == magnitude || high == 0) return sign | high;
  const double up = *above - magnitude;
  const double down = magnitude - values[high - 1];
  if (up == down) return sign | (high % 2 == 0 ? high : high - 1);
  return sign | (up < down ? high : high - 1);
}

struct Format {
  int mantissa;
  int bias;
  double overflow;  // least magnitude that rounds to infinity
  std::uint32_t (*narrow)(float);
  float (*widen)(std::uint32_t);
};

const Format kF16{
    10, 15, 65520, [](float x) { return std::uint32_t{numerics::to_f16(x).bits}; },
    [](std::uint32_t b) { return numerics::to_float(F16{static_cast<std::uint16_t>(b)}); }};
const Format kBf16{
    7, 127, std::ldexp(511.0, 119),
    [](float x) { return std::uint32_t{numerics::to_bf16(x).bits}; },
    [](std::uint32_t b) { return numerics::to_float(Bf16{static_cast<std::uint16_t>(b)}); }};

std::vector<double> finite_values(const Format& format) {
  std::vector<double> values;
  for (std::uint32_t b = 0; std::isfinite(value_of(b, format.mantissa, format.bias)); ++b)
    values.push_back(value_of(b, format.mantissa, format.bias));
  return values;
}

void check_format(const Format& format) {
  const std::vector<double> values = finite_values(format);
  int wrong = 0;
  for (std::uint32_t b = 0; b <= 0xffff; ++b) {
    const float wide = format.widen(b);
    const double expected = value_of(b, format.mantissa, format.bias);
    if (std::isnan(expected)) {
      wrong += !(std::isnan(wide) && std::isnan(format.widen(format.narrow(wide))));
    } else {
      wrong += !(static_cast<double>(wide) == expected &&
                 std::signbit(wide) == ((b & 0x8000U) != 0) && format.narrow(wide) == b);
    }
  }
  CHECK(wrong == 0);
  // Around each value and each midpoint, the FP32 neighbours and both signs.
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    const float middle = static_cast<float>((values[i] + values[i + 1]) / 2);
    for (const float base : {value, middle}) {
      for (const int step : {-1, 0, 1}) {
        const std::uint32_t raw = bits_of(base) + static_cast<std::uint32_t>(step);
        if (base == 0 && step < 0) continue;
        const float x = from_bits(raw);
        for (const float y : {x, -x})
          wrong += format.narrow(y) != nearest(values, format.overflow, static_cast<double>(y));
      }
    }
  }
  CHECK(wrong == 0);
  // All magnitudes, subnormal and huge ones too, in prime steps.
  for (std::uint32_t raw = 0; raw < 0x7f800000U; raw += 10007) {
    const float x = from_bits(raw);
    wrong += format.narrow(x) != nearest(values, format.overflow, static_cast<double>(x));
  }
  CHECK(wrong == 0);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(format.widen(format.narrow(-infinity)) == -infinity);
  CHECK(format.widen(format.narrow(std::numeric_limits<float>::max())) == infinity);
}

TEST_CASE("fp16 conversions are exact and round to nearest even") {
  check_format(kF16);
}

TEST_CASE("bf16 conversions are exact and round to nearest even") {
  check_format(kBf16);
}

template <class S>
void check_vector_form(Isa isa, std::uint32_t (*scalar)(float)) {
  constexpr std::size_t kCount = 1021;  // not a multiple of 16
  std::vector<float> in(kCount);
  std::vector<S> out(kCount);
  std::vector<float> back(kCount);
  int wrong = 0;
  for (std::uint32_t start = 0; start < 4096; ++start) {
    for (std::size_t i = 0; i < kCount; ++i)
      in[i] = from_bits((start * 1021U + static_cast<std::uint32_t>(i)) * 1028U + start % 1028U);
    kernels<S>(isa).narrow(in.data(), out.data(), kCount);
    kernels<S>(isa).widen(out.data(), back.data(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      wrong += out[i].bits != scalar(in[i]);
      wrong += bits_of(back[i]) != bits_of(numerics::to_float(out[i]));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("vector conversions give the bits of the integer forms, NaN included") {
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    CAPTURE(isa_name(isa));
    check_vector_form<F16>(isa, kF16.narrow);
    check_vector_form<Bf16>(isa, kBf16.narrow);
  }
}

}  // namespace
}  // namespace muster::runtime
