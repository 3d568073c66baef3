// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/recoveries.h"

#include <algorithm>
#include <vector>

namespace muster::rendezvous {

void Recoveries::add(const event::Recovered& recovered) {
  ++count_;
  newest_.push_back(recovered);
  if (newest_.size() > kKept) newest_.pop_front();
}

RecoverySummary Recoveries::summary() const {
  RecoverySummary summary;
  summary.count = count_;
  if (newest_.empty()) return summary;
  const auto median = [this](Duration event::Recovered::*part) {
    std::vector<Duration> values;
    for (const event::Recovered& recovered : newest_)
      values.push_back(recovered.*part);
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  summary.detect = median(&event::Recovered::detect);
  summary.stop = median(&event::Recovered::stop);
  summary.form = median(&event::Recovered::form);
  summary.spawn = median(&event::Recovered::spawn);
  summary.total = median(&event::Recovered::total);
  return summary;
}

}  // namespace muster::rendezvous
