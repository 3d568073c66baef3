// SPDX-License-Identifier: Apache-2.0
#include "agent/core/stop_ladder.h"

#include <algorithm>

#include "proto/base/check.h"

namespace muster::agent {

void StopLadder::begin(int signal, SignalScope scope, Instant signal_at, Instant kill_at) {
  MUSTER_CHECK(signal_at <= kill_at);
  if (begun_) return hasten(signal_at, kill_at);
  begun_ = true;
  signal_ = signal;
  scope_ = scope;
  signal_at_ = signal_at;
  kill_at_ = kill_at;
}

void StopLadder::hasten(Instant signal_at, Instant kill_at) {
  MUSTER_CHECK(begun_);
  signal_at_ = std::min(signal_at_, signal_at);
  kill_at_ = std::min(kill_at_, kill_at);
}

void StopLadder::kill(Instant now) {
  begin(kSigKill, SignalScope::kGroup, now, now);
}

std::vector<StopLadder::Order> StopLadder::due(Instant now) {
  std::vector<Order> orders;
  if (!begun_ || closed_ || killed_) return orders;
  if (now >= kill_at_) {
    orders.push_back({kSigKill, SignalScope::kGroup});
    orders.push_back({kSigKill, SignalScope::kDescendants});
    killed_ = true;
    return orders;
  }
  if (!signaled_ && now >= signal_at_) {
    const SignalScope scope = leader_ended_ ? SignalScope::kDescendants : scope_;
    orders.push_back({signal_, scope});
    signaled_ = true;
    group_signaled_ = scope != SignalScope::kLeader;
    rest_signaled_ = scope == SignalScope::kDescendants;
  }
  if (signaled_ && leader_ended_ && !rest_signaled_) {
    // Nobody is told twice.
    orders.push_back(
        {signal_, group_signaled_ ? SignalScope::kBeyondGroup : SignalScope::kDescendants});
    rest_signaled_ = true;
  }
  return orders;
}

std::optional<Instant> StopLadder::next_deadline() const {
  if (!begun_ || closed_ || killed_) return std::nullopt;
  return signaled_ ? kill_at_ : std::min(signal_at_, kill_at_);
}

}  // namespace muster::agent
