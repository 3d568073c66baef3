// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding to 16 bits: to one of the two neighbours, to the farther one from zero with
// the probability that makes the expected value the number itself (up to 2^-32 of their distance).
// The random word decides alone: the same word gives the same bits everywhere. What S holds
// exactly stays; NaN and infinity convert as by half.h. Beyond S's largest number the upper
// neighbour is infinity.
#pragma once

#include <cstdint>

#include "worker_runtime/numerics/half.h"
#include "worker_runtime/numerics/hd.h"
#include "worker_runtime/numerics/philox.h"

namespace muster::runtime::numerics {

// `mantissa` / 2^shift, rounded down or, if `word` / 2^32 is below what that loses, up. shift >= 1.
MUSTER_HD std::uint32_t round_by_chance(std::uint32_t mantissa, std::uint32_t shift,
                                        std::uint32_t word) {
  if (shift > 55U) return 0U;
  const std::uint32_t kept = shift < 32U ? mantissa >> shift : 0U;
  // What is lost, in units of 2^-32 of the distance.
  const std::uint32_t lost =
      shift <= 32U ? (mantissa << (32U - shift)) : (mantissa >> (shift - 32U));
  return kept + (word < lost ? 1U : 0U);
}

MUSTER_HD Bf16 to_bf16_by_chance(float x, std::uint32_t word) {
  const std::uint32_t b = bits_of(x);
  const std::uint32_t magnitude = b & 0x7fffffffU;
  if (magnitude >= 0x7f800000U) return to_bf16(x);
  return {
      static_cast<std::uint16_t>(((b >> 16) & 0x8000U) | round_by_chance(magnitude, 16U, word))};
}

MUSTER_HD F16 to_f16_by_chance(float x, std::uint32_t word) {
  const std::uint32_t b = bits_of(x);
  const std::uint32_t sign = (b >> 16) & 0x8000U;
  const std::uint32_t magnitude = b & 0x7fffffffU;
  if (magnitude >= 0x47800000U) return to_f16(x);  // 65536 and more: infinite either way
  std::uint32_t result = 0;
  if (magnitude >= 0x38800000U) {  // normal
    result = round_by_chance(magnitude - 0x38000000U, 13U, word);
  } else if (magnitude >= 0x00800000U) {  // in units of 2^-24
    result = round_by_chance((magnitude & 0x7fffffU) | 0x800000U, 126U - (magnitude >> 23), word);
  }
  return {static_cast<std::uint16_t>(sign | result)};
}

// The random word of element `element` in update `update`; `key` is a run's own. Four elements,
// from a multiple of four, share a draw.
MUSTER_HD Philox rounding_words(std::uint64_t key, std::uint64_t update, std::uint64_t element) {
  return philox(key, element / 4, update);
}

}  // namespace muster::runtime::numerics
