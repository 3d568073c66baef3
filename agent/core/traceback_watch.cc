// SPDX-License-Identifier: Apache-2.0
#include "agent/core/traceback_watch.h"

#include <algorithm>

namespace muster::agent {

namespace {

constexpr std::string_view kHead = "Traceback (most recent call last):";

}  // namespace

void TracebackWatch::feed(std::string_view data, Instant now) {
  const std::string seam = carry_ + std::string(data.substr(0, kHead.size() - 1));
  const bool found = data.find(kHead) != std::string_view::npos ||
                     (!carry_.empty() && seam.find(kHead) != std::string::npos);
  // Less than all of it: what was found once is not found again.
  const std::string_view end = data.size() < kHead.size() ? std::string_view(seam) : data;
  carry_ = end.substr(end.size() - std::min(end.size(), kHead.size() - 1));
  if (!found) return;
  if (!first_ || now - latest_ > kSameFailure) first_ = now;
  latest_ = now;
}

std::optional<Instant> TracebackWatch::failing_since(Instant now) const {
  return first_ && now - latest_ <= kEndsWithin ? first_ : std::nullopt;
}

}  // namespace muster::agent
