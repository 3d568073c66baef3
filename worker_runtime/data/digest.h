// SPDX-License-Identifier: Apache-2.0
//
// Fingerprints of bytes, by XXH3: of corpora, checkpoint chunks, configurations, parameters.
// They guard against accidents (torn files, mixed-up hosts), not against an attacker.
//
// Thread rule: free functions are pure; a Digest128 belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace muster::runtime {

// XXH3, 64 bits, seed 0.
std::uint64_t digest64(std::span<const std::byte> bytes);
std::uint64_t digest64(std::string_view text);

// 16 lower-case hexadecimal digits, most significant first.
std::string hex64(std::uint64_t value);

// XXH3, 128 bits, seed 0, over everything added so far.
class Digest128 {
 public:
  Digest128();
  ~Digest128();
  Digest128(const Digest128&) = delete;
  Digest128& operator=(const Digest128&) = delete;

  void add(std::span<const std::byte> bytes);
  // 32 lower-case hexadecimal digits in XXH128's canonical (big-endian) order.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::runtime
