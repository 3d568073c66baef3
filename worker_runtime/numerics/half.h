// SPDX-License-Identifier: Apache-2.0
//
// bfloat16 and IEEE half precision as bits, converted by integer operations: round to nearest,
// ties to even, subnormals kept, overflow to infinity, NaN stays NaN (quiet, sign and the leading
// payload bits kept). The same bits on every host and device, and those of F16C's instructions.
#pragma once

#include <cstdint>

#include "worker_runtime/numerics/hd.h"

namespace muster::runtime {

struct Bf16 {
  std::uint16_t bits = 0;
};
struct F16 {
  std::uint16_t bits = 0;
};

namespace numerics {

MUSTER_HD std::uint32_t bits_of(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}
MUSTER_HD float from_bits(std::uint32_t x) {
  return __builtin_bit_cast(float, x);
}

MUSTER_HD float to_float(Bf16 x) {
  return from_bits(std::uint32_t{x.bits} << 16);
}

MUSTER_HD Bf16 to_bf16(float x) {
  const std::uint32_t b = bits_of(x);
  if ((b & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((b >> 16) | 0x40U)};
  // The carry of the rounding increment runs into the exponent: that is how 1.11…1 becomes 2.
  return {static_cast<std::uint16_t>((b + 0x7fffU + ((b >> 16) & 1U)) >> 16)};
}

MUSTER_HD float to_float(F16 x) {
  const std::uint32_t sign = (std::uint32_t{x.bits} & 0x8000U) << 16;
  const std::uint32_t rest = std::uint32_t{x.bits} & 0x7fffU;
  if (rest >= 0x7c00U) {  // infinity, or NaN made quiet
    const std::uint32_t quiet = rest > 0x7c00U ? 0x400000U : 0U;
    return from_bits(sign | 0x7f800000U | ((rest & 0x3ffU) << 13) | quiet);
  }
  if (rest >= 0x400U) return from_bits(sign | ((rest << 13) + 0x38000000U));
  // Subnormal: rest * 2^-24, exact in FP32.
  return from_bits(sign | bits_of(static_cast<float>(rest) * 0x1p-24F));
}

MUSTER_HD F16 to_f16(float x) {
  const std::uint32_t b = bits_of(x);
  const std::uint32_t sign = (b >> 16) & 0x8000U;
  const std::uint32_t magnitude = b & 0x7fffffffU;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000U) {
    result = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= 0x477ff000U) {  // rounds to 65536 or beyond
    result = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // normal: at least 2^-14
    result = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  } else if (magnitude >= 0x33000000U) {  // at least 2^-25, half the smallest subnormal
    const std::uint32_t shift = 126U - (magnitude >> 23);  // 14 … 24
    const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t kept = mantissa >> shift;
    const std::uint32_t lost = mantissa & ((1U << shift) - 1U);
    const std::uint32_t tie = 1U << (shift - 1U);
    result = kept + ((lost > tie || (lost == tie && (kept & 1U) != 0U)) ? 1U : 0U);
  }
  return {static_cast<std::uint16_t>(sign | result)};
}

}  // namespace numerics
}  // namespace muster::runtime
