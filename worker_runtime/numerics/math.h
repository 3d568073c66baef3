// SPDX-License-Identifier: Apache-2.0
//
// Our own exp, log, sine and GELU: polynomials with explicit fused multiply-add, because the
// libraries of hosts and devices differ in their last bits. Compile with contraction off.
// V is a number or sixteen of them (cpu/lanes.h): one source, the same bits. V needs + - * /,
// multiply_add, select(greater(a, b), x, y) and scale_by_power.
#pragma once

#include <cstdint>

#include "worker_runtime/numerics/half.h"
#include "worker_runtime/numerics/hd.h"

namespace muster::runtime::numerics {

MUSTER_HD float multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
MUSTER_HD double multiply_add(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
MUSTER_HD float square_root(float x) {
  return __builtin_sqrtf(x);
}
MUSTER_HD double square_root(double x) {
  return __builtin_sqrt(x);
}
MUSTER_HD bool greater(float a, float b) {
  return a > b;
}
MUSTER_HD float select(bool which, float a, float b) {
  return which ? a : b;
}

template <class V>
MUSTER_HD V constant(float x) {
  return V(x);
}

// 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits of the sum.
inline constexpr float kRoundMagic = 12582912.0F;

// y * 2^n, where `t` = n + kRoundMagic; in two halves, so that n in [-252, 254] neither overflows
// nor underflows before the product does.
MUSTER_HD float scale_by_power(float y, float t) {
  const std::uint32_t n = bits_of(t) - bits_of(kRoundMagic);
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) >> 1);
  return y * from_bits((half + 127U) << 23) * from_bits((n - half + 127U) << 23);
}

// e^x; at most 1 unit in the last place off, gradual underflow, NaN stays NaN.
template <class V>
MUSTER_HD V exp(V x) {
  const V high = constant<V>(89.0F);
  const V low = constant<V>(-104.0F);
  x = select(greater(x, high), high, x);
  x = select(greater(low, x), low, x);
  const V t = multiply_add(x, constant<V>(1.44269504F), constant<V>(kRoundMagic));
  const V n = t - constant<V>(kRoundMagic);
  V r = multiply_add(n, constant<V>(-0.693145752F), x);
  r = multiply_add(n, constant<V>(-1.42860677e-6F), r);
  V p = constant<V>(1.0F / 5040.0F);
  p = multiply_add(p, r, constant<V>(1.0F / 720.0F));
  p = multiply_add(p, r, constant<V>(1.0F / 120.0F));
  p = multiply_add(p, r, constant<V>(1.0F / 24.0F));
  p = multiply_add(p, r, constant<V>(1.0F / 6.0F));
  p = multiply_add(p, r, constant<V>(0.5F));
  p = multiply_add(p, r, constant<V>(1.0F));
  p = multiply_add(p, r, constant<V>(1.0F));
  return scale_by_power(p, t);
}
MUSTER_HD double exp(double x) {
  return __builtin_exp(x);
}

// Natural logarithm; log(0) = -inf, of negative numbers and NaN: NaN, of +inf: +inf.
MUSTER_HD float log(float x) {
  if (!(x > 0.0F)) return x == 0.0F ? -__builtin_inff() : __builtin_nanf("");
  if (x > 3.40282347e38F) return x;
  float exponent = 0.0F;
  if (x < 1.17549435e-38F) {
    x *= 0x1p23F;
    exponent = -23.0F;
  }
  std::uint32_t b = bits_of(x);
  // Mantissa into [sqrt(1/2), sqrt(2)), so that logarithms near 1 lose nothing to cancellation.
  const std::uint32_t shift = (b - 0x3f3504f3U) & 0xff800000U;
  exponent += static_cast<float>(static_cast<std::int32_t>(shift) >> 23);
  const float f = from_bits(b - shift) - 1.0F;
  const float s = f / (2.0F + f);
  const float z = s * s;
  float p = 2.0F / 11.0F;
  p = multiply_add(p, z, 2.0F / 9.0F);
  p = multiply_add(p, z, 2.0F / 7.0F);
  p = multiply_add(p, z, 2.0F / 5.0F);
  p = multiply_add(p, z, 2.0F / 3.0F);
  // log(1 + f) = f - s * (f - z * p), which keeps f's bits (2s = f - s f).
  const float tail = multiply_add(exponent, 1.42860677e-6F, -s * (f - z * p));
  return multiply_add(exponent, 0.693145752F, f + tail);
}
MUSTER_HD double log(double x) {
  return __builtin_log(x);
}

struct SinCos {
  float sin;
  float cos;
};
// Sine and cosine of 2 pi u, u in [0, 1).
MUSTER_HD SinCos sin_cos_turns(float u) {
  const float nearest = (u * 4.0F + kRoundMagic) - kRoundMagic;
  const std::int32_t quarter = static_cast<std::int32_t>(nearest);
  const float a = (u - nearest * 0.25F) * 6.28318531F;
  const float z = a * a;
  float s = 1.0F / 362880.0F;
  s = multiply_add(s, z, -1.0F / 5040.0F);
  s = multiply_add(s, z, 1.0F / 120.0F);
  s = multiply_add(s, z, -1.0F / 6.0F);
  const float sine = multiply_add(a * z, s, a);
  float c = -1.0F / 3628800.0F;
  c = multiply_add(c, z, 1.0F / 40320.0F);
  c = multiply_add(c, z, -1.0F / 720.0F);
  c = multiply_add(c, z, 1.0F / 24.0F);
  c = multiply_add(c, z, -0.5F);
  const float cosine = multiply_add(c, z, 1.0F);
  switch (quarter & 3) {
    case 0: return {sine, cosine};
    case 1: return {cosine, -sine};
    case 2: return {-sine, -cosine};
    default: return {-cosine, sine};
  }
}

// GELU in its tanh form, written as x * sigmoid(2 t(x)), t = sqrt(2/pi) (x + 0.044715 x^3):
// 0.5 (1 + tanh t) is sigmoid(2 t), and this way takes one exponential.
inline constexpr double kGeluScale = 1.5957691216057308;  // 2 sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

template <class V, class T>
MUSTER_HD V gelu_sigmoid(V x) {
  const V cubic = multiply_add(V(T(kGeluCubic)) * x * x, x, x);
  return V(T(1)) / (V(T(1)) + exp(V(T(-kGeluScale)) * cubic));
}

template <class V, class T>
MUSTER_HD V gelu(V x) {
  return x * gelu_sigmoid<V, T>(x);
}

// d gelu / dx.
template <class V, class T>
MUSTER_HD V gelu_slope(V x) {
  const V s = gelu_sigmoid<V, T>(x);
  const V inner = multiply_add(V(T(3 * kGeluCubic * kGeluScale)) * x, x, V(T(kGeluScale)));
  return multiply_add(x * inner, s * (V(T(1)) - s), s);
}

}  // namespace muster::runtime::numerics
