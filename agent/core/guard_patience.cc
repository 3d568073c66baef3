// SPDX-License-Identifier: Apache-2.0
#include "agent/core/guard_patience.h"

#include <algorithm>

namespace muster::agent {

void GuardPatience::told(Instant now, std::uint32_t heard, bool passed_on) {
  if (last_ && now - *last_ < kTogether) return;
  last_ = now;
  unheard_ = passed_on ? heard : heard_;
  heard_ = heard;
  if (++signals_ == 1 && limit_) end_ = now + *limit_;
  if (signals_ >= 3 && !hear_until_) hear_until_ = now + kHearing;
}

std::optional<Instant> GuardPatience::deadline() const {
  if (end_ && hear_until_) return std::min(*end_, *hear_until_);
  return end_ ? end_ : hear_until_;
}

bool GuardPatience::over(Instant now, std::uint32_t heard) {
  if (end_ && now >= *end_) return true;
  if (!hear_until_ || now < *hear_until_) return false;
  hear_until_.reset();
  return heard == unheard_;
}

}  // namespace muster::agent
