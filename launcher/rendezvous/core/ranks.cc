// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/ranks.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Takes the leading run of digits (or of other characters) off `text`.
std::string_view take_run(std::string_view& text) {
  const bool digits = is_digit(text.front());
  std::size_t length = 1;
  while (length < text.size() && is_digit(text[length]) == digits)
    ++length;
  const std::string_view run = text.substr(0, length);
  text.remove_prefix(length);
  return run;
}

std::string_view without_zeros(std::string_view digits) {
  return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

// < 0, 0, > 0. Numbers of any length: the longer one is greater.
int compare_runs(std::string_view a, std::string_view b) {
  if (!is_digit(a.front()) || !is_digit(b.front())) return a.compare(b);
  const std::string_view x = without_zeros(a);
  const std::string_view y = without_zeros(b);
  if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
  return x.compare(y);
}

int natural_compare(std::string_view a, std::string_view b) {
  std::string_view rest_a = a;
  std::string_view rest_b = b;
  while (!rest_a.empty() && !rest_b.empty()) {
    const int order = compare_runs(take_run(rest_a), take_run(rest_b));
    if (order != 0) return order;
  }
  if (rest_a.empty() != rest_b.empty()) return rest_a.empty() ? -1 : 1;
  return a.compare(b);
}

bool newcomer_less(const Candidate* a, const Candidate* b) {
  if (a->index.has_value() != b->index.has_value()) return a->index.has_value();
  if (a->index != b->index) return *a->index < *b->index;
  for (const int order : {natural_compare(a->host, b->host), natural_compare(a->addr, b->addr)}) {
    if (order != 0) return order < 0;
  }
  return natural_less(a->name, b->name);
}

// Where somebody stands: at a group rank of the last generation, or just before or after who has
// it.
struct Place {
  std::int64_t rank = 0;
  int side = 0;  // -1: before, 1: after
  auto operator<=>(const Place&) const = default;
};

class Seating {
 public:
  // Who was there before stays at its group rank.
  void stay(const Candidate& candidate) { put({*candidate.previous, 0}, candidate); }

  // At the place of its node rank if that keeps the order of node ranks, else next to the one that
  // stands in the way; before one that has the place without having asked for it.
  void ask(const Candidate& candidate) {
    const std::int64_t wanted = *candidate.node_rank;
    std::optional<Place> below;
    std::optional<Place> above;
    for (const auto& [place, other] : seats_) {
      if (!other->node_rank) continue;
      if (*other->node_rank < *candidate.node_rank) below = std::max(below.value_or(place), place);
      if (*other->node_rank > *candidate.node_rank) above = std::min(above.value_or(place), place);
    }
    if (below && wanted <= below->rank) return put({below->rank, 1}, candidate);
    if (above && wanted >= above->rank) return put({above->rank, -1}, candidate);
    put({wanted, taken_.contains(wanted) ? -1 : 0}, candidate);
  }

  // At the lowest place that nobody has.
  void fill(const Candidate& candidate) {
    while (taken_.contains(lowest_))
      ++lowest_;
    put({lowest_, 0}, candidate);
  }

  std::vector<const Candidate*> in_order() {
    std::stable_sort(seats_.begin(), seats_.end(), [](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      return a.second->node_rank < b.second->node_rank;
    });
    std::vector<const Candidate*> order;
    for (const auto& [place, candidate] : seats_)
      order.push_back(candidate);
    return order;
  }

 private:
  void put(Place place, const Candidate& candidate) {
    if (place.side == 0) taken_.insert(place.rank);
    seats_.emplace_back(place, &candidate);
  }

  std::vector<std::pair<Place, const Candidate*>> seats_;
  std::set<std::int64_t> taken_;
  std::int64_t lowest_ = 0;
};

std::vector<const Candidate*> seated(const std::vector<Candidate>& candidates) {
  std::vector<const Candidate*> asking;
  std::vector<const Candidate*> newcomers;
  Seating seating;
  for (const Candidate& candidate : candidates) {
    MUSTER_CHECK(candidate.slots > 0);
    if (candidate.previous) {
      seating.stay(candidate);
    } else {
      (candidate.node_rank ? asking : newcomers).push_back(&candidate);
    }
  }
  std::sort(asking.begin(), asking.end(), [](const Candidate* a, const Candidate* b) {
    return a->node_rank != b->node_rank ? *a->node_rank < *b->node_rank : a->name < b->name;
  });
  std::sort(newcomers.begin(), newcomers.end(), newcomer_less);
  for (const Candidate* candidate : asking)
    seating.ask(*candidate);
  for (const Candidate* candidate : newcomers)
    seating.fill(*candidate);
  return seating.in_order();
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  return natural_compare(a, b) < 0;
}

std::vector<MemberRanks> assign_ranks(const std::vector<Candidate>& candidates) {
  std::vector<MemberRanks> ranks;
  ranks.reserve(candidates.size());
  std::uint32_t first_rank = 0;
  for (const Candidate* candidate : seated(candidates)) {
    ranks.push_back(
        {candidate->name, static_cast<std::uint32_t>(ranks.size()), first_rank, candidate->slots});
    first_rank += candidate->slots;
  }
  return ranks;
}

}  // namespace muster::rendezvous
