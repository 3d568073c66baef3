// SPDX-License-Identifier: Apache-2.0
//
// Chance as an input. A machine owns one of these, seeded by its shell; standard distributions
// differ between libraries, so the bounded draws are our own.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    return mix(state_);
  }

  // Uniform in [0, bound). REQUIRES bound > 0. The bias is below bound / 2^64.
  constexpr std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  // Uniform in [0, 1), 53 bits.
  constexpr double unit() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

 private:
  std::uint64_t state_;
};

// FNV-1a, 64 bits: for fingerprints and for choices by hash, not for security.
constexpr std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0) {
  std::uint64_t hash = 0xcbf29ce484222325U ^ Rng::mix(seed);
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace muster
