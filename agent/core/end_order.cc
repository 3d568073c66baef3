// SPDX-License-Identifier: Apache-2.0
#include "agent/core/end_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "proto/base/check.h"

namespace muster::agent {

namespace {

bool is_reaction(Evidence evidence) {
  return evidence == Evidence::kReaction || evidence == Evidence::kLostPeer;
}

constexpr int kSuccess = static_cast<int>(Evidence::kLostPeer) + 1;

}  // namespace

bool EndOrder::asks_for_others(Evidence evidence) const {
  return !open_ || (!is_reaction(evidence) && all_reactions());
}

bool EndOrder::all_reactions() const {
  return std::all_of(ends_.begin(), ends_.end(), [this](const SeenEnd& end) {
    return place(end) >= static_cast<int>(Evidence::kReaction) && place(end) < kSuccess;
  });
}

Duration EndOrder::gather(const SeenEnd& end, const std::vector<StillAlive>& others) {
  MUSTER_CHECK(end.evidence && asks_for_others(*end.evidence));
  std::set<std::int64_t> waits_for;
  std::set<std::int64_t> ending;
  Duration patience{0};
  const auto wait = [&](const StillAlive& other, Duration limit) {
    waits_for.insert(other.pid);
    patience = std::max(patience, limit);
  };
  for (const StillAlive& other : others) {
    const bool spoke_before = other.spoke && (!end.spoke || *other.spoke < *end.spoke);
    if (other.ending) ending.insert(other.pid);
    const bool failed_before = other.failing && *other.failing < end.began;
    if (other.ending) wait(other, kPatience);
    if (is_reaction(*end.evidence)) {
      wait(other, other.failing ? kPatienceWithFailing : kPatienceWithReaction);
    }
    if (end.evidence == Evidence::kExit && failed_before) wait(other, kPatienceWithFailing);
    if (end.evidence == Evidence::kExit && spoke_before) wait(other, kPatienceWithSpeakers);
  }
  if (open_) {  // an end that is no reaction: not everybody has to be waited for any more
    std::erase_if(waits_for_, [&](std::int64_t pid) { return !waits_for.contains(pid); });
    waits_elsewhere_ = false;
    return 0s;
  }
  const bool elsewhere = peers_elsewhere_ && is_reaction(*end.evidence);
  if (elsewhere) patience = std::max(patience, kPatienceWithReaction);
  if (waits_for.empty() && !elsewhere) return 0s;
  waits_elsewhere_ = elsewhere;
  open_ = true;
  waits_for_ = std::move(waits_for);
  were_ending_ = std::move(ending);
  return patience;
}

bool EndOrder::add(const SeenEnd& end) {
  MUSTER_CHECK(open_);
  waits_for_.erase(end.pid);
  ends_.push_back(end);
  return waits_for_.empty() && !waits_elsewhere_;
}

bool EndOrder::heard_from_elsewhere() {
  waits_elsewhere_ = false;
  return open_ && waits_for_.empty();
}

int EndOrder::place(const SeenEnd& end) const {
  if (!end.evidence) return kSuccess;
  const int own = static_cast<int>(*end.evidence);
  if (end.evidence != Evidence::kCrash || ends_.empty()) return own;
  const SeenEnd& first = ends_.front();
  if (end.pid == first.pid || were_ending_.contains(end.pid)) return own;
  const bool began_before = end.began <= first.seen;
  const bool spoke_before = end.spoke && *end.spoke <= first.spoke.value_or(first.seen);
  return began_before || spoke_before ? own : static_cast<int>(Evidence::kReaction);
}

std::vector<std::int64_t> EndOrder::close() {
  // Words of some say nothing about those that are silent.
  std::set<int> silent;
  for (const SeenEnd& end : ends_) {
    if (!end.spoke) silent.insert(place(end));
  }
  std::vector<std::tuple<int, Instant, std::int64_t>> told;
  for (const SeenEnd& end : ends_) {
    const int at = place(end);
    told.emplace_back(at, silent.contains(at) ? end.began : *end.spoke, end.pid);
  }
  std::stable_sort(told.begin(), told.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<std::int64_t> pids;
  for (const auto& end : told)
    pids.push_back(std::get<2>(end));
  open_ = false;
  waits_elsewhere_ = false;
  ends_.clear();
  waits_for_.clear();
  were_ending_.clear();
  return pids;
}

}  // namespace muster::agent
