// SPDX-License-Identifier: Apache-2.0
#include "proto/base/nearest.h"

#include <algorithm>
#include <numeric>

namespace muster {
namespace {

// Edit distance with insertions, deletions, replacements and swapped neighbours.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  // Whoever writes pages has not mistyped a flag, and the table would be as large as they are.
  constexpr std::size_t kLongest = 200;
  if (word.size() > kLongest) return {};
  std::string best;
  // One letter in three may be wrong: of "foo" only one, or it would be "aio".
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    std::size_t away = distance(word, candidate);
    // "--events-file" means --events more than any word of similar length.
    if (word.size() > 3 && candidate.size() > 3 &&
        (candidate.starts_with(word) || word.starts_with(candidate))) {
      away = std::min<std::size_t>(away, 1);
    }
    if (away <= best_distance && (best.empty() || away < best_distance)) {
      best_distance = away;
      best = candidate;
    }
  }
  return best;
}

}  // namespace muster
