// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/ranks.h"

#include <algorithm>
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

// The places as they are claimed: explicit node ranks are places of their own; who was there before
// stays where it was, or behind whom took that place; new ones fill the lowest places left.
std::vector<std::pair<std::uint64_t, const Candidate*>> places_of(
    const std::vector<Candidate>& candidates) {
  std::vector<std::pair<std::uint64_t, const Candidate*>> places;
  std::set<std::uint64_t> taken;
  std::vector<const Candidate*> stayers;
  std::vector<const Candidate*> newcomers;
  for (const Candidate& candidate : candidates) {
    MUSTER_CHECK(candidate.slots > 0);
    if (candidate.node_rank) {
      taken.insert(*candidate.node_rank);
      places.emplace_back(*candidate.node_rank, &candidate);
    } else {
      (candidate.previous ? stayers : newcomers).push_back(&candidate);
    }
  }
  std::uint64_t next = 0;
  const auto place = [&](const Candidate* candidate) {
    while (!taken.insert(next).second)
      ++next;
    places.emplace_back(next, candidate);
  };
  std::sort(stayers.begin(), stayers.end(),
            [](const Candidate* a, const Candidate* b) { return *a->previous < *b->previous; });
  for (const Candidate* candidate : stayers) {
    next = std::max<std::uint64_t>(next, *candidate->previous);
    place(candidate);
  }
  std::sort(newcomers.begin(), newcomers.end(), newcomer_less);
  next = 0;
  for (const Candidate* candidate : newcomers)
    place(candidate);
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second->name < b.second->name;
  });
  return places;
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  return natural_compare(a, b) < 0;
}

std::vector<MemberRanks> assign_ranks(const std::vector<Candidate>& candidates) {
  std::vector<MemberRanks> ranks;
  ranks.reserve(candidates.size());
  std::uint32_t first_rank = 0;
  for (const auto& [place, candidate] : places_of(candidates)) {
    ranks.push_back(
        {candidate->name, static_cast<std::uint32_t>(ranks.size()), first_rank, candidate->slots});
    first_rank += candidate->slots;
  }
  return ranks;
}

}  // namespace muster::rendezvous
