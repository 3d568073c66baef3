// SPDX-License-Identifier: Apache-2.0
#include "agent/core/guard_patience.h"

#include <algorithm>

namespace muster::agent {
namespace {

constexpr std::uint32_t kKills = 3;

}  // namespace

void GuardPatience::told(Instant now, std::uint32_t heard) {
  if (last_ && now - *last_ < kTogether) return;
  last_ = now;
  if (++signals_ == 1 && limit_) end_ = now + *limit_;
  if (signals_ != kKills) return;
  took_at_ = now;
  heard_ = heard;
  look_at_ = now + kHearing;
}

std::optional<Instant> GuardPatience::deadline() const {
  if (look_at_ && end_) return std::min(*look_at_, *end_);
  return look_at_ ? look_at_ : end_;
}

GuardPatience::Order GuardPatience::look(Instant now, std::uint32_t heard) {
  if (end_ && now >= *end_) return Order::kKill;
  if (!look_at_ || now < *look_at_) return Order::kWait;
  if (heard >= kKills) {
    look_at_.reset();
    return Order::kWait;
  }
  if (heard != heard_) took_at_ = now;
  heard_ = heard;
  if (now - took_at_ >= kHearing) return Order::kKill;
  look_at_ = now + kAgain;
  return Order::kSendAgain;
}

}  // namespace muster::agent
