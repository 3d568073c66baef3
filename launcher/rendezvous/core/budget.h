// SPDX-License-Identifier: Apache-2.0
//
// What failures cost. Every worker failure is charged; node losses are free as far as the policy
// says; leaving and joining never come here. The count of charged restarts never falls.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "proto/base/job.h"
#include "proto/base/rng.h"
#include "proto/base/time.h"

namespace muster::rendezvous {

struct Charge {
  bool allowed = true;   // false: the budget is used up and the job ends
  bool charged = false;  // one restart was taken from the budget
  Duration delay{0};     // before the next forming
};

class Budget {
 public:
  explicit Budget(const JobPolicy& policy);

  Charge worker_failed(Instant now, Rng& rng);
  // `elastic`: the job has MIN < MAX, where the first losses are free. Losses settled together
  // are one loss.
  Charge node_lost(bool elastic, Instant now, Rng& rng);

  // The job got further than it ever was, or ran well for kHealthyTime: what failed before is
  // forgiven, what was charged is not.
  void progressed();

  // Restarts that another server charged before us. Never lowers the count.
  void adopt(std::uint32_t used, Instant now);

  // What another server of ours wrote down; `charges` only with a window, newest last.
  void restore(std::uint32_t used, const std::vector<Instant>& charges);
  void restore_rows(std::uint32_t failures_in_row, std::uint32_t losses_in_row);

  const std::deque<Instant>& charges() const { return charges_; }
  std::uint32_t failures_in_row() const { return failures_in_row_; }
  std::uint32_t losses_in_row() const { return losses_in_row_; }

  // "2 of 2 restarts used", "2 of 2 restarts within 6s used, 5 in all".
  std::string words(Instant now);

  std::uint32_t used() const { return used_; }
  std::uint32_t max() const { return policy_.max_restarts; }

 private:
  Charge take(Instant now, Rng& rng);
  std::uint32_t counted(Instant now);
  Duration next_delay(Rng& rng);

  JobPolicy policy_;
  std::uint32_t used_ = 0;
  std::deque<Instant> charges_;        // only with a window; newest last
  std::uint32_t failures_in_row_ = 0;  // since progress; drives the backoff
  std::uint32_t losses_in_row_ = 0;    // since progress
};

// A generation that ran this long is healthy.
inline constexpr Duration kHealthyTime = 600s;

}  // namespace muster::rendezvous
