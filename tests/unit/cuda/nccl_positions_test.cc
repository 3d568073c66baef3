// SPDX-License-Identifier: Apache-2.0
//
// What the ranks' positions say about why a collective does not end.
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "worker_runtime/cuda/positions.h"

namespace muster::runtime::cuda {
namespace {

CollectiveRecord reduce(std::uint64_t sequence, std::uint64_t count) {
  CollectiveRecord record;
  record.sequence = sequence;
  record.count = count;
  return record;
}

std::optional<Position> at(std::uint64_t enqueued, std::uint64_t sequence, std::uint64_t count) {
  return Position{enqueued, reduce(sequence, count)};
}

}  // namespace

TEST_CASE("who is behind, who differs and who is silent is told apart") {
  const CollectiveRecord mine = reduce(7, 64);
  const auto find = [&](std::vector<std::optional<Position>> others) {
    others.insert(others.begin(), at(9, 7, 64));
    return compare_positions(0, mine, others);
  };
  CHECK(find({at(9, 7, 64), at(7, 7, 64)}).text.empty());
  CHECK(find({at(6, 0, 0), at(7, 7, 64)}).text == "rank 1 has not come to it");
  CHECK(find({at(6, 0, 0), at(5, 5, 64)}).text == "ranks 1, 2 have not come to it");
  const Findings silent = find({at(9, 7, 64), std::nullopt});
  CHECK(silent.text == "rank 2 does not answer");
  CHECK(silent.silent == 2);
  CHECK_FALSE(silent.mismatch);
  const Findings both = find({std::nullopt, std::nullopt, at(3, 0, 0)});
  CHECK(both.text == "ranks 1, 2 do not answer; rank 3 has not come to it");
  CHECK(both.silent == -1);
  const Findings differs = find({at(9, 7, 64), at(8, 7, 65), at(8, 7, 66)});
  CHECK(differs.mismatch);
  CHECK(differs.text == "rank 2 came to it with all-reduce 7 (f32 x 65)");
}

TEST_CASE("without a collective only silence says something") {
  const Findings found =
      compare_positions(1, CollectiveRecord(), {at(0, 0, 0), at(0, 0, 0), std::nullopt});
  CHECK(found.text == "rank 2 does not answer");
}

TEST_CASE("of many ranks some are named") {
  const Findings found =
      compare_positions(0, reduce(1, 1), std::vector<std::optional<Position>>(100));
  CHECK(found.text == "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 91 more do not answer");
}

TEST_CASE("a position reads back, and anything else is an error") {
  Position position = *at(12, 7, 1ULL << 40U);
  position.oldest.operation = NcclOperation::kAllGather;
  position.oldest.type = kNcclBf16;
  const auto read = read_position_line(position_line(position));
  REQUIRE(read.ok());
  CHECK(read->enqueued == 12);
  CHECK(record_text(read->oldest) == "all-gather 7 (bf16 x 1099511627776)");
  for (const char* bad : {"", "1", "1 2 3 4", "1 2 3 4 5 6", "1 2 3 4 x", "-1 2 3 4 5", "1  2 3 4"})
    CHECK_FALSE(read_position_line(bad).ok());
}

}  // namespace muster::runtime::cuda
