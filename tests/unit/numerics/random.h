// SPDX-License-Identifier: Apache-2.0
//
// Reproducible inputs for the numeric tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/numerics/philox.h"

namespace muster::runtime {

// `count` normal numbers times `deviation`, as storage type S.
template <class S>
std::vector<S> random_values(std::size_t count, std::uint64_t seed, float deviation = 1.0F) {
  std::vector<S> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const numerics::Philox bits = numerics::philox(seed, i, 99);
    const float x = numerics::normal_pair(bits.word[0], bits.word[1]).first * deviation;
    if constexpr (std::is_same_v<S, Bf16>) {
      values[i] = numerics::to_bf16(x);
    } else if constexpr (std::is_same_v<S, F16>) {
      values[i] = numerics::to_f16(x);
    } else {
      values[i] = static_cast<S>(x);
    }
  }
  return values;
}

inline std::vector<std::int32_t> random_tokens(std::size_t count, std::uint64_t seed,
                                               std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = numerics::philox(seed, i, 5).word[0];
    tokens[i] = static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocabulary));
  }
  return tokens;
}

// From 1 to `most`; 1 to 10 is as likely as 100 to 1,000.
inline std::size_t random_size(std::uint64_t seed, std::uint64_t which, std::size_t most) {
  const double share = numerics::philox(seed, which, 7).word[0] * 0x1p-32;
  const double size = std::exp(share * std::log(static_cast<double>(most) + 1));
  return std::min(static_cast<std::size_t>(size), most);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline std::vector<Isa> supported_isas() {
  std::vector<Isa> found;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa_supported(isa)) found.push_back(isa);
  }
  return found;
}

}  // namespace muster::runtime
