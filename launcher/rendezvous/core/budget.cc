// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/budget.h"

#include <algorithm>

namespace muster::rendezvous {

Budget::Budget(const JobPolicy& policy) : policy_(policy) {}

Charge Budget::worker_failed(Instant now, Rng& rng) {
  return take(now, rng);
}

Charge Budget::node_lost(bool elastic, Instant now, Rng& rng) {
  ++losses_in_row_;
  if (elastic && losses_in_row_ <= policy_.max_node_losses) return {};
  return take(now, rng);
}

void Budget::progressed() {
  failures_in_row_ = 0;
  losses_in_row_ = 0;
}

void Budget::adopt(std::uint32_t used, Instant now) {
  // When they were charged is not known; "just now" can only be too strict.
  for (; used_ < used; ++used_) {
    const bool counts = policy_.max_restarts_window && charges_.size() < policy_.max_restarts;
    if (counts) charges_.push_back(now);
  }
}

void Budget::restore(std::uint32_t used, const std::vector<Instant>& charges) {
  used_ = used;
  charges_.assign(charges.begin(), charges.end());
}

void Budget::restore_rows(std::uint32_t failures_in_row, std::uint32_t losses_in_row) {
  failures_in_row_ = failures_in_row;
  losses_in_row_ = losses_in_row;
}

Charge Budget::take(Instant now, Rng& rng) {
  if (counted(now) >= policy_.max_restarts) return {false, false, Duration{0}};
  ++used_;
  if (policy_.max_restarts_window) charges_.push_back(now);
  return {true, true, next_delay(rng)};
}

std::uint32_t Budget::counted(Instant now) {
  if (!policy_.max_restarts_window) return used_;
  while (!charges_.empty() && now - charges_.front() > *policy_.max_restarts_window) {
    charges_.pop_front();
  }
  return static_cast<std::uint32_t>(charges_.size());
}

std::string Budget::words(Instant now) {
  const std::string most = " of " + std::to_string(policy_.max_restarts) + " restarts ";
  if (!policy_.max_restarts_window) return std::to_string(used_) + most + "used";
  return std::to_string(counted(now)) + most + "within " +
         format_duration(*policy_.max_restarts_window) + " used, " + std::to_string(used_) +
         " in all";
}

// 0, then 1 s doubling to the policy's maximum, give or take a fifth.
Duration Budget::next_delay(Rng& rng) {
  const std::uint32_t failures = failures_in_row_++;
  if (failures == 0) return Duration{0};
  constexpr std::uint32_t kMostDoublings = 20;  // 12 days; the maximum is far below
  const Duration full =
      std::min<Duration>(std::chrono::seconds(1) * (1LL << std::min(failures - 1, kMostDoublings)),
                         policy_.restart_backoff_max);
  const double factor = 0.8 + 0.4 * rng.unit();
  return std::chrono::duration_cast<std::chrono::milliseconds>(full * factor);
}

}  // namespace muster::rendezvous
