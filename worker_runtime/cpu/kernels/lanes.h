// SPDX-License-Identifier: Apache-2.0
//
// Sixteen numbers at a time: one AVX-512 register, two AVX2 registers or an array, with the same
// result bit for bit (every operation is elementwise IEEE; sums across lanes use one tree).
// For the kernel files only, which are compiled once an instruction set: everything here has
// internal linkage, so that no copy made for a newer processor can be linked into another file.
#pragma once

#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "worker_runtime/numerics/math.h"
#include "worker_runtime/numerics/reduce.h"

#define MUSTER_LANES [[gnu::always_inline]] inline
// The array form is called, not inlined: the code of instrumented builds would grow tenfold.
#define MUSTER_ARRAY [[gnu::noinline, maybe_unused]]

namespace muster::runtime {
namespace {

using numerics::kLanes;

// The array form: any instruction set, and FP64 for the gradient checks. The compiler cuts its
// vectors into what the processor has.
template <class T>
struct LaneArray {
  using Number = T;
  using Vector [[gnu::vector_size(kLanes * sizeof(T))]] = T;
  Vector v;
  LaneArray() = default;
  explicit LaneArray(T x) : v(x - Vector{}) {}
  MUSTER_ARRAY static LaneArray load(const T* p) {
    LaneArray r;
    std::memcpy(&r.v, p, sizeof(r.v));
    return r;
  }
  MUSTER_ARRAY void store(T* p) const { std::memcpy(p, &v, sizeof(v)); }
};

template <class T, class F>
MUSTER_ARRAY LaneArray<T> each_lane(F f) {
  LaneArray<T> r;
// Sixteen copies of a call would be faster by nothing and bigger by much.
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l)
    r.v[l] = f(l);
  return r;
}
template <class T>
MUSTER_ARRAY LaneArray<T> from_vector(const typename LaneArray<T>::Vector& v) {
  LaneArray<T> r;
  r.v = v;
  return r;
}
template <class T>
MUSTER_ARRAY LaneArray<T> operator+(const LaneArray<T>& a, const LaneArray<T>& b) {
  return from_vector<T>(a.v + b.v);
}
template <class T>
MUSTER_ARRAY LaneArray<T> operator-(const LaneArray<T>& a, const LaneArray<T>& b) {
  return from_vector<T>(a.v - b.v);
}
template <class T>
MUSTER_ARRAY LaneArray<T> operator*(const LaneArray<T>& a, const LaneArray<T>& b) {
  return from_vector<T>(a.v * b.v);
}
template <class T>
MUSTER_ARRAY LaneArray<T> operator/(const LaneArray<T>& a, const LaneArray<T>& b) {
  return from_vector<T>(a.v / b.v);
}
template <class T>
MUSTER_ARRAY LaneArray<T> multiply_add(const LaneArray<T>& a, const LaneArray<T>& b,
                                       const LaneArray<T>& c) {
  return each_lane<T>([&](int l) { return numerics::multiply_add(a.v[l], b.v[l], c.v[l]); });
}
template <class T>
MUSTER_ARRAY LaneArray<T> square_root(const LaneArray<T>& a) {
  return each_lane<T>([&](int l) { return numerics::square_root(a.v[l]); });
}
template <class T>
MUSTER_ARRAY auto greater(const LaneArray<T>& a, const LaneArray<T>& b) {
  return a.v > b.v;
}
template <class M, class T>
MUSTER_ARRAY LaneArray<T> select(const M& m, const LaneArray<T>& a, const LaneArray<T>& b) {
  return from_vector<T>(m ? a.v : b.v);
}
MUSTER_ARRAY LaneArray<float> scale_by_power(const LaneArray<float>& y, const LaneArray<float>& t) {
  return each_lane<float>([&](int l) { return numerics::scale_by_power(y.v[l], t.v[l]); });
}
MUSTER_ARRAY LaneArray<double> exp(const LaneArray<double>& x) {
  return each_lane<double>([&](int l) { return numerics::exp(x.v[l]); });
}
// (std::min is a template with external linkage.)
MUSTER_LANES constexpr std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

template <class T>
MUSTER_ARRAY T lane_sum(const LaneArray<T>& a) {
  T lanes[kLanes];
  a.store(lanes);
  return numerics::tree_sum(lanes);
}
// Lanes 0 … count-1.
template <class T>
MUSTER_ARRAY auto first_lanes(const LaneArray<T>&, std::size_t count) {
  const auto index = each_lane<T>([](int l) { return static_cast<T>(l); });
  return greater(LaneArray<T>(static_cast<T>(count)), index);
}

#if defined(__AVX512F__)

struct F32x16 {
  using Number = float;
  __m512 v;
  F32x16() = default;
  explicit F32x16(float x) : v(_mm512_set1_ps(x)) {}
  explicit F32x16(__m512 x) : v(x) {}
  MUSTER_LANES static F32x16 load(const float* p) { return F32x16(_mm512_loadu_ps(p)); }
  MUSTER_LANES void store(float* p) const { _mm512_storeu_ps(p, v); }
};
MUSTER_LANES F32x16 operator+(F32x16 a, F32x16 b) {
  return F32x16(a.v + b.v);
}
MUSTER_LANES F32x16 operator-(F32x16 a, F32x16 b) {
  return F32x16(a.v - b.v);
}
MUSTER_LANES F32x16 operator*(F32x16 a, F32x16 b) {
  return F32x16(a.v * b.v);
}
MUSTER_LANES F32x16 operator/(F32x16 a, F32x16 b) {
  return F32x16(a.v / b.v);
}
MUSTER_LANES F32x16 multiply_add(F32x16 a, F32x16 b, F32x16 c) {
  return F32x16(_mm512_fmadd_ps(a.v, b.v, c.v));
}
MUSTER_LANES F32x16 square_root(F32x16 a) {
  return F32x16(_mm512_maskz_sqrt_ps(0xffff, a.v));
}
MUSTER_LANES __mmask16 greater(F32x16 a, F32x16 b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ);
}
MUSTER_LANES F32x16 select(__mmask16 m, F32x16 a, F32x16 b) {
  return F32x16(_mm512_mask_blend_ps(m, b.v, a.v));
}
MUSTER_LANES __mmask16 first_lanes(F32x16, std::size_t count) {
  return count >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1U << count) - 1U);
}
MUSTER_LANES F32x16 scale_by_power(F32x16 y, F32x16 t) {
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(t.v),
                                     _mm512_castps_si512(_mm512_set1_ps(numerics::kRoundMagic)));
  const __m512i half = _mm512_maskz_srai_epi32(0xffff, n, 1);
  const __m512i bias = _mm512_set1_epi32(127);
  const auto power = [&](__m512i e) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_add_epi32(e, bias), 23));
  };
  return F32x16(y.v * power(half) * power(_mm512_sub_epi32(n, half)));
}
MUSTER_LANES void halves(F32x16 a, __m256& low, __m256& high) {
  low = _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xf, _mm512_castps_pd(a.v), 0));
  high = _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xf, _mm512_castps_pd(a.v), 1));
}

#elif defined(__AVX2__)

struct F32x16 {
  using Number = float;
  __m256 low;
  __m256 high;
  F32x16() = default;
  explicit F32x16(float x) : low(_mm256_set1_ps(x)), high(low) {}
  F32x16(__m256 a, __m256 b) : low(a), high(b) {}
  MUSTER_LANES static F32x16 load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  MUSTER_LANES void store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
};
struct MaskPair {
  __m256 low;
  __m256 high;
};
MUSTER_LANES F32x16 operator+(F32x16 a, F32x16 b) {
  return {a.low + b.low, a.high + b.high};
}
MUSTER_LANES F32x16 operator-(F32x16 a, F32x16 b) {
  return {a.low - b.low, a.high - b.high};
}
MUSTER_LANES F32x16 operator*(F32x16 a, F32x16 b) {
  return {a.low * b.low, a.high * b.high};
}
MUSTER_LANES F32x16 operator/(F32x16 a, F32x16 b) {
  return {a.low / b.low, a.high / b.high};
}
MUSTER_LANES F32x16 multiply_add(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
MUSTER_LANES F32x16 square_root(F32x16 a) {
  return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)};
}
MUSTER_LANES MaskPair greater(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ)};
}
MUSTER_LANES F32x16 select(MaskPair m, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.low, a.low, m.low), _mm256_blendv_ps(b.high, a.high, m.high)};
}
MUSTER_LANES MaskPair first_lanes(F32x16, std::size_t count) {
  const __m256 index = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 end = _mm256_set1_ps(count >= 16 ? 16.0F : static_cast<float>(count));
  return {_mm256_cmp_ps(index, end, _CMP_LT_OQ),
          _mm256_cmp_ps(index + _mm256_set1_ps(8), end, _CMP_LT_OQ)};
}
MUSTER_LANES F32x16 scale_by_power(F32x16 y, F32x16 t) {
  const auto scale = [](__m256 number, __m256 sum) {
    const __m256i magic = _mm256_castps_si256(_mm256_set1_ps(numerics::kRoundMagic));
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(sum), magic);
    const __m256i half = _mm256_srai_epi32(n, 1);
    const auto power = [](__m256i e) {
      const __m256i biased = _mm256_add_epi32(e, _mm256_set1_epi32(127));
      return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
    };
    return number * power(half) * power(_mm256_sub_epi32(n, half));
  };
  return {scale(y.low, t.low), scale(y.high, t.high)};
}
MUSTER_LANES void halves(F32x16 a, __m256& low, __m256& high) {
  low = a.low;
  high = a.high;
}

#else

using F32x16 = LaneArray<float>;

#endif

#if defined(__AVX2__)
// numerics::tree_sum in registers.
MUSTER_LANES float lane_sum(F32x16 a) {
  __m256 low;
  __m256 high;
  halves(a, low, high);
  const __m256 eight = low + high;
  const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#endif

MUSTER_LANES F32x16 exp_of(F32x16 x) {
  return numerics::exp<F32x16>(x);
}
MUSTER_ARRAY LaneArray<double> exp_of(const LaneArray<double>& x) {
  return exp(x);
}

template <class V>
MUSTER_LANES V larger(V a, V b) {
  return select(greater(a, b), a, b);
}

template <class V>
MUSTER_LANES typename V::Number lane_max(V a) {
  typename V::Number lanes[kLanes];
  a.store(lanes);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l)
      lanes[l] = lanes[l] > lanes[l + width] ? lanes[l] : lanes[l + width];
  }
  return lanes[0];
}

// The sixteen lanes that compute for a storage type.
template <class A>
struct LanesOf {
  using Type = F32x16;
};
template <>
struct LanesOf<double> {
  using Type = LaneArray<double>;
};
template <class A>
using Lanes = typename LanesOf<A>::Type;

}  // namespace
}  // namespace muster::runtime
