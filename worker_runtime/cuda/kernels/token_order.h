// SPDX-License-Identifier: Apache-2.0
//
// A batch's places sorted by the token that stands there, for the gradient of the token embedding
// (embedding.h). On the host, before the batch is copied to the device.
//
// Thread rule: plain data and a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::runtime::cuda {

struct TokenOrder {
  // Sizes depend on the number of places alone, so that device buffers and launches do. Entries
  // beyond the distinct tokens: token 0 without places.
  std::vector<std::int32_t> distinct;  // [places], ascending
  std::vector<std::uint32_t> starts;   // [places + 1]: into `places`, of distinct[i]
  std::vector<std::uint32_t> places;   // [places]: b * time + t, by token, then ascending
};

// Tokens of sequence b are tokens[b * token_stride … + time). A stable counting sort.
// REQUIRES: the tokens used lie in [0, vocabulary); batch * time < 2^32.
TokenOrder token_order(std::span<const std::int32_t> tokens, std::size_t token_stride,
                       std::size_t batch, std::size_t time, std::size_t vocabulary);

}  // namespace muster::runtime::cuda
