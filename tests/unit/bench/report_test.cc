// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster::runtime {
namespace {

using nlohmann::json;

const BenchFacts kFacts{"min-bytes 8", "nccl", {"alpha, device 0", "beta, device 0"}};

SweepRow row() {
  return {.bytes = 134217728,
          .count = 33554432,
          .type = WireType::kF32,
          .time_us = 842.617234234,
          .bandwidth = {159.2876543, 159.2876543},
          .wrong = 0};
}

}  // namespace

TEST_CASE("the table says what ran where, and its columns stand below each other") {
  const std::vector<std::string> head = table_head(kFacts);
  REQUIRE(head.size() == 6);
  CHECK(head[0] == "# all-reduce, sum; 2 ranks, backend nccl");
  CHECK(head[1] == "# min-bytes 8");
  CHECK(head[3] == "#   rank 1: beta, device 0");
  CHECK(head[4] ==
        "#      bytes         count    type    time (us)      algbw      busbw     wrong");
  CHECK(head[5] == "#                                                   (GB/s)     (GB/s)");
  CHECK(table_row(row()) ==
        "   134217728      33554432    fp32       842.62    159.288    159.288         0");
  SweepRow slow = row();
  slow.time_us = 61234567.8;
  slow.wrong = 67108864;
  CHECK(table_row(slow) ==
        "   134217728      33554432    fp32     61234568    159.288    159.288  67108864");
  for (const std::string& line : head)
    CHECK(line.starts_with("#"));
}

TEST_CASE("the end has the mean over the sizes") {
  SweepResult result;
  result.rows = {row(), row()};
  result.rows[1].bandwidth.bus = 59.2876543;
  result.wrong = {0, 0};
  CHECK(table_end(result) ==
        std::vector<std::string>{"# wrong results: 0", "# average bus bandwidth: 109.288 GB/s"});
  CHECK(wrong_text(result).empty());
  result.stopped = true;
  result.wrong = {0, 3};
  const std::vector<std::string> end = table_end(result);
  CHECK(end.front() == "# stopped on request");
  CHECK(end[1] == "# wrong results: 3");
  CHECK_THAT(wrong_text(result), Catch::StartsWith("3 results are wrong (rank 1: 3): "));
  result.wrong = {1, 0};
  CHECK_THAT(wrong_text(result), Catch::StartsWith("1 result is wrong (rank 0: 1): "));
  CHECK(SweepResult().mean_bus() == 0);
}

TEST_CASE("a line of JSON stands for itself") {
  const json line = json::parse(row_json(kFacts, row()));
  CHECK(line["backend"] == "nccl");
  CHECK(line["ranks"] == 2);
  CHECK(line["bytes"] == 134217728);
  CHECK(line["type"] == "fp32");
  CHECK(line["time_us"] == 842.617234);
  CHECK(line["busbw_gb_per_s"] == 159.287654);
  CHECK(line["wrong"] == 0);

  SweepResult result;
  result.rows = {row()};
  result.wrong = {2, 0};
  const json end = json::parse(end_json(kFacts, result));
  CHECK(end["done"] == true);
  CHECK(end["sizes"] == 1);
  CHECK(end["wrong"] == 2);
  CHECK(end["average_busbw_gb_per_s"] == 159.287654);
  result.stopped = true;
  CHECK(json::parse(end_json(kFacts, result))["stopped"] == true);
}

}  // namespace muster::runtime
