// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores of sixteen lanes in every storage format (FP32, FP64, bf16, fp16), whole or
// the first `count` of them. For the kernel files only; see lanes.h.
#pragma once

#include <cstddef>

#include "worker_runtime/cpu/kernels/lanes.h"
#include "worker_runtime/numerics/half.h"

namespace muster::runtime {
namespace {

MUSTER_LANES F32x16 load(const float* p) {
  return F32x16::load(p);
}
MUSTER_LANES void store(float* p, F32x16 x) {
  x.store(p);
}
MUSTER_LANES LaneArray<double> load(const double* p) {
  return LaneArray<double>::load(p);
}
MUSTER_LANES void store(double* p, const LaneArray<double>& x) {
  x.store(p);
}

#if defined(__AVX512F__)

MUSTER_LANES F32x16 load(const Bf16* p) {
  const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xffff, raw);
  return F32x16(_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16)));
}
MUSTER_LANES void store(Bf16* p, F32x16 x) {
  const __m512i b = _mm512_castps_si512(x.v);
  const __m512i high = _mm512_maskz_srli_epi32(0xffff, b, 16);
  const __m512i odd = _mm512_and_epi32(high, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i rounded = _mm512_maskz_srli_epi32(0xffff, sum, 16);
  const __m512i quiet = _mm512_or_epi32(high, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i bits = _mm512_mask_blend_epi32(nan, rounded, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtepi32_epi16(0xffff, bits));
}
MUSTER_LANES F32x16 load(const F16* p) {
  const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return F32x16(_mm512_maskz_cvtph_ps(0xffff, raw));
}
MUSTER_LANES void store(F16* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_maskz_cvtps_ph(0xffff, x.v, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__AVX2__)

MUSTER_LANES F32x16 load(const Bf16* p) {
  const auto widen = [](const Bf16* from) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
  };
  return {widen(p), widen(p + 8)};
}
MUSTER_LANES void store(Bf16* p, F32x16 x) {
  const auto narrow = [](__m256 number) {
    const __m256i b = _mm256_castps_si256(number);
    const __m256i high = _mm256_srli_epi32(b, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(b, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(number, number, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
  };
  const __m256i packed = _mm256_packus_epi32(narrow(x.low), narrow(x.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
MUSTER_LANES F32x16 load(const F16* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
MUSTER_LANES void store(F16* p, F32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}

#else

template <class S>
MUSTER_ARRAY F32x16 load(const S* p) {
  return each_lane<float>([&](int l) { return numerics::to_float(p[l]); });
}
MUSTER_ARRAY void store(Bf16* p, const F32x16& x) {
  for (int l = 0; l < kLanes; ++l)
    p[l] = numerics::to_bf16(x.v[l]);
}
MUSTER_ARRAY void store(F16* p, const F32x16& x) {
  for (int l = 0; l < kLanes; ++l)
    p[l] = numerics::to_f16(x.v[l]);
}

#endif

// The first `count` lanes, the rest 0. Out of line: a tail is short work and long code.
template <class S>
[[gnu::noinline]] auto load_tail(const S* p, std::size_t count) {
  S part[kLanes] = {};
  for (std::size_t l = 0; l < count; ++l)
    part[l] = p[l];
  return load(static_cast<const S*>(part));
}
template <class S, class V>
[[gnu::noinline]] void store_tail(S* p, const V& x, std::size_t count) {
  S part[kLanes];
  store(static_cast<S*>(part), x);
  for (std::size_t l = 0; l < count; ++l)
    p[l] = part[l];
}

// `count` is a constant 16 in whole-vector loops.
template <class S>
MUSTER_LANES auto load(const S* p, std::size_t count) {
  return count == kLanes ? load(p) : load_tail(p, count);
}
template <class S, class V>
MUSTER_LANES void store(S* p, const V& x, std::size_t count) {
  if (count == kLanes) return store(p, x);
  store_tail(p, x, count);
}

// The value that storage in S keeps of x.
template <class S, class V>
MUSTER_LANES V rounded(const V& x) {
  if constexpr (sizeof(S) >= sizeof(float)) {
    return x;
  } else {
    S kept[kLanes];
    store(static_cast<S*>(kept), x);
    return load(static_cast<const S*>(kept));
  }
}

// body(i, lanes) over [0, count) in steps of sixteen; `lanes` is below 16 only in the last one.
template <class Body>
MUSTER_LANES void for_lanes(std::size_t count, Body body) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    body(i, std::size_t{kLanes});
  if (i < count) body(i, count - i);
}

#define MUSTER_BODY [&](std::size_t i, std::size_t n) __attribute__((always_inline))

// Sum of body(i, lanes) over [0, count).
template <class V, class Body>
MUSTER_LANES typename V::Number sum_lanes(std::size_t count, Body body) {
  V sum(typename V::Number{0});
  for_lanes(
      count, MUSTER_BODY { sum = sum + body(i, n); });
  return lane_sum(sum);
}

}  // namespace
}  // namespace muster::runtime
