// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/naive.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace muster::sim {
namespace {

// "gpu-2" as {"gpu-", "00…02"}: then the order of texts is the order of numbers.
std::vector<std::string> padded_runs(std::string_view text) {
  constexpr std::size_t kWidth = 64;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::vector<std::string> runs;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end]) == is_digit(text[at]))
      ++end;
    std::string run(text.substr(at, end - at));
    if (is_digit(run.front()) && run.size() < kWidth) run.insert(0, kWidth - run.size(), '0');
    runs.push_back(std::move(run));
    at = end;
  }
  return runs;
}

// By a scheduler's number, where there is one; then by host, then address, then name.
bool comes_before(const rendezvous::Candidate& a, const rendezvous::Candidate& b) {
  constexpr std::uint64_t kNone = 1ULL << 40U;
  const std::uint64_t x_index = a.index ? *a.index : kNone;
  const std::uint64_t y_index = b.index ? *b.index : kNone;
  if (x_index != y_index) return x_index < y_index;
  for (const auto& [x, y] : {std::pair(a.host, b.host), std::pair(a.addr, b.addr)}) {
    if (naive_natural_less(x, y)) return true;
    if (naive_natural_less(y, x)) return false;
  }
  return naive_natural_less(a.name, b.name);
}

}  // namespace

bool naive_natural_less(std::string_view a, std::string_view b) {
  const std::vector<std::string> x = padded_runs(a);
  const std::vector<std::string> y = padded_runs(b);
  return x != y ? x < y : a < b;
}

namespace {

using Party = std::vector<const rendezvous::Candidate*>;

// One place of a row; nobody's own where it is empty.
struct Chair {
  Party before;
  const rendezvous::Candidate* own = nullptr;
  Party after;
};

Chair& chair_at(std::vector<Chair>& row, std::size_t place) {
  if (row.size() <= place) row.resize(place + 1);
  return row[place];
}

// The chairs of the nearest neighbours by node rank: of the last one below, of the first one above.
std::pair<std::optional<std::size_t>, std::optional<std::size_t>> neighbours(
    const std::vector<Chair>& row, std::uint32_t node_rank) {
  std::optional<std::size_t> below;
  std::optional<std::size_t> above;
  for (std::size_t place = 0; place < row.size(); ++place) {
    Party here = row[place].before;
    if (row[place].own != nullptr) here.push_back(row[place].own);
    here.insert(here.end(), row[place].after.begin(), row[place].after.end());
    for (const rendezvous::Candidate* other : here) {
      if (!other->node_rank) continue;
      if (*other->node_rank < node_rank) below = place;
      if (*other->node_rank > node_rank && !above) above = place;
    }
  }
  return {below, above};
}

void seat_by_node_rank(std::vector<Chair>& row, const rendezvous::Candidate& one) {
  const std::size_t wanted = *one.node_rank;
  const auto [below, above] = neighbours(row, *one.node_rank);
  if (below && wanted <= *below) {
    row[*below].after.push_back(&one);
  } else if (above && wanted >= *above) {
    row[*above].before.push_back(&one);
  } else if (Chair& chair = chair_at(row, wanted); chair.own != nullptr) {
    chair.before.push_back(&one);
  } else {
    chair.own = &one;
  }
}

}  // namespace

// A row of chairs: who stays sits down first, then who asked for a chair, by number, then the rest.
std::vector<MemberRanks> naive_ranks(std::vector<rendezvous::Candidate> all) {
  std::vector<Chair> row;
  Party asking;
  Party rest;
  for (const rendezvous::Candidate& one : all) {
    if (one.previous) {
      chair_at(row, *one.previous).own = &one;
    } else {
      (one.node_rank ? asking : rest).push_back(&one);
    }
  }
  std::sort(asking.begin(), asking.end(),
            [](const auto* a, const auto* b) { return *a->node_rank < *b->node_rank; });
  for (const rendezvous::Candidate* one : asking)
    seat_by_node_rank(row, *one);
  std::sort(rest.begin(), rest.end(),
            [](const auto* a, const auto* b) { return comes_before(*a, *b); });
  for (std::size_t place = 0; !rest.empty(); ++place) {
    if (chair_at(row, place).own != nullptr) continue;
    row[place].own = rest.front();
    rest.erase(rest.begin());
  }
  std::vector<MemberRanks> ranks;
  std::uint32_t next = 0;
  const auto give = [&](const rendezvous::Candidate* one) {
    ranks.push_back({one->name, static_cast<std::uint32_t>(ranks.size()), next, one->slots});
    next += one->slots;
  };
  for (const Chair& chair : row) {
    for (const auto* one : chair.before)
      give(one);
    if (chair.own != nullptr) give(chair.own);
    for (const auto* one : chair.after)
      give(one);
  }
  return ranks;
}

}  // namespace muster::sim
