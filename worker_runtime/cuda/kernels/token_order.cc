// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/kernels/token_order.h"

#include <limits>

#include "proto/base/check.h"

namespace muster::runtime::cuda {

TokenOrder token_order(std::span<const std::int32_t> tokens, std::size_t token_stride,
                       std::size_t batch, std::size_t time, std::size_t vocabulary) {
  const std::size_t places = batch * time;
  MUSTER_CHECK(places <= std::numeric_limits<std::uint32_t>::max());
  MUSTER_CHECK(places == 0 || (batch - 1) * token_stride + time <= tokens.size());
  const auto token_at = [&](std::size_t place) {
    const std::int32_t token = tokens[place / time * token_stride + place % time];
    MUSTER_CHECK(token >= 0 && static_cast<std::size_t>(token) < vocabulary);
    return static_cast<std::size_t>(token);
  };
  // Counts, then where each token's next place goes.
  std::vector<std::uint32_t> next(vocabulary);
  for (std::size_t place = 0; place < places; ++place)
    ++next[token_at(place)];

  TokenOrder order;
  std::uint32_t start = 0;
  for (std::size_t token = 0; token < vocabulary; ++token) {
    const std::uint32_t count = next[token];
    next[token] = start;
    if (count == 0) continue;
    order.distinct.push_back(static_cast<std::int32_t>(token));
    order.starts.push_back(start);
    start += count;
  }
  order.distinct.resize(places);
  order.starts.resize(places + 1, start);

  order.places.resize(places);
  for (std::size_t place = 0; place < places; ++place)
    order.places[next[token_at(place)]++] = static_cast<std::uint32_t>(place);
  return order;
}

}  // namespace muster::runtime::cuda
