// SPDX-License-Identifier: Apache-2.0
//
// The fake clock: what happens next, in order of time and, at one instant, of asking. Everything
// in the simulated world happens through here, in one thread, so a seed replays exactly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "proto/base/time.h"

namespace muster::sim {

class Scheduler {
 public:
  Instant now() const { return now_; }

  // REQUIRES: when >= now(); an earlier one happens now.
  void at(Instant when, std::function<void()> what) {
    std::size_t place = deeds_.size();
    if (free_.empty()) {
      deeds_.push_back(std::move(what));
    } else {
      place = free_.back();
      free_.pop_back();
      deeds_[place] = std::move(what);
    }
    heap_.push_back({std::max(when, now_), ++sequence_, place});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // Does the next thing; false when there is none.
  bool run_one() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry next = heap_.back();
    heap_.pop_back();
    now_ = next.when;
    const std::function<void()> what = std::exchange(deeds_[next.deed], nullptr);
    free_.push_back(next.deed);
    what();
    return true;
  }

 private:
  struct Entry {
    Instant when;
    std::uint64_t sequence = 0;
    std::size_t deed = 0;  // its place in `deeds_`: the heap moves its entries a lot
  };
  static bool later(const Entry& a, const Entry& b) {
    return a.when != b.when ? a.when > b.when : a.sequence > b.sequence;
  }

  Instant now_;
  std::uint64_t sequence_ = 0;
  std::vector<Entry> heap_;
  std::vector<std::function<void()>> deeds_;
  std::vector<std::size_t> free_;  // places in `deeds_`
};

}  // namespace muster::sim
