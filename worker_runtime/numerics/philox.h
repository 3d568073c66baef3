// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10 (Salmon et al., 2011): random bits as a pure function of (key, counter), so that a
// draw depends on what it is for and not on who draws it or in which order.
#pragma once

#include <cstdint>

#include "worker_runtime/numerics/hd.h"
#include "worker_runtime/numerics/math.h"

namespace muster::runtime::numerics {

struct Philox {
  std::uint32_t word[4];
};

MUSTER_HD Philox philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  Philox x{{static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
            static_cast<std::uint32_t>(counter_high),
            static_cast<std::uint32_t>(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * x.word[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * x.word[2];
    x = Philox{
        {static_cast<std::uint32_t>(p1 >> 32) ^ x.word[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ x.word[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x;
}

// Uniform in [0, 1): a multiple of 2^-24.
MUSTER_HD float uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

// Two independent standard normal numbers (Box and Muller); |result| < 5.8.
struct NormalPair {
  float first;
  float second;
};
MUSTER_HD NormalPair normal_pair(std::uint32_t a, std::uint32_t b) {
  const float above_zero = static_cast<float>((a >> 8) + 1U) * 0x1p-24F;
  const float radius = square_root(-2.0F * log(above_zero));
  const SinCos angle = sin_cos_turns(uniform(b));
  return {radius * angle.cos, radius * angle.sin};
}

}  // namespace muster::runtime::numerics
