// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/naive.h"

#include <algorithm>
#include <tuple>
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

std::vector<MemberRanks> naive_ranks(std::vector<rendezvous::Candidate> left) {
  std::vector<MemberRanks> ranks;
  std::uint32_t next = 0;
  const auto take = [&](std::size_t index) {
    const rendezvous::Candidate& taken = left[index];
    ranks.push_back({taken.name, static_cast<std::uint32_t>(ranks.size()), next, taken.slots});
    next += taken.slots;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(index));
  };
  // Place by place: who asked for it, else who had it or an earlier one, else the first newcomer.
  for (std::uint64_t place = 0; !left.empty(); ++place) {
    std::optional<std::size_t> asked;
    std::optional<std::size_t> stayer;
    std::optional<std::size_t> newcomer;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const rendezvous::Candidate& one = left[i];
      if (one.node_rank) {
        if (*one.node_rank == place) asked = i;
      } else if (!one.previous) {
        if (!newcomer || comes_before(one, left[*newcomer])) newcomer = i;
      } else if (*one.previous <= place) {
        if (!stayer || *one.previous < *left[*stayer].previous) stayer = i;
      }
    }
    if (!asked) asked = stayer ? stayer : newcomer;
    if (asked) take(*asked);
  }
  return ranks;
}

}  // namespace muster::sim
