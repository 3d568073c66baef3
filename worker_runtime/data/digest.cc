// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/data/digest.h"

#include <array>

#include <xxhash.h>

#include "proto/base/check.h"

namespace muster::runtime {
namespace {

std::string hex(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const unsigned char byte : bytes) {
    text.push_back(kDigits[byte >> 4U]);
    text.push_back(kDigits[byte & 15U]);
  }
  return text;
}

}  // namespace

std::uint64_t digest64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t digest64(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string hex64(std::uint64_t value) {
  XXH64_canonical_t canonical;
  XXH64_canonicalFromHash(&canonical, value);
  return hex(canonical.digest);
}

struct Digest128::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Digest128::Digest128() : state_(std::make_unique<State>()) {
  MUSTER_CHECK(XXH3_128bits_reset(state_->xxh.get()) == XXH_OK);
}

Digest128::~Digest128() = default;

void Digest128::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  MUSTER_CHECK(XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size()) == XXH_OK);
}

std::string Digest128::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh.get()));
  return muster::runtime::hex(canonical.digest);
}

}  // namespace muster::runtime
