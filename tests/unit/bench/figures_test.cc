// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/figures.h"

#include <catch2/catch.hpp>

namespace muster::runtime {

using Counts = std::vector<std::uint64_t>;

TEST_CASE("sizes are bytes, with a suffix for powers of 1024") {
  CHECK(parse_bytes("8") == 8);
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("64K") == 65536);
  CHECK(parse_bytes("128m") == 134217728);
  CHECK(parse_bytes("2G") == 2147483648);
  CHECK(parse_bytes("1024G") == kMostBytes);
  for (const char* odd : {"", "K", "-1", "+1", " 8", "8 ", "8KB", "8T", "1.5G", "0x10", "1025G",
                          "1099511627777", "99999999999999999999"}) {
    INFO(odd);
    CHECK_FALSE(parse_bytes(odd).has_value());
  }
}

TEST_CASE("types have the configuration's names") {
  for (const auto& [name, bytes] : {std::pair{"fp32", 4U}, {"bf16", 2U}, {"fp16", 2U}}) {
    const auto type = parse_wire_type(name);
    REQUIRE(type.has_value());
    CHECK(std::string(wire_type_name(*type)) == name);
    CHECK(wire_type_bytes(*type) == bytes);
  }
  CHECK_FALSE(parse_wire_type("int8").has_value());
  CHECK_FALSE(parse_wire_type("").has_value());
}

TEST_CASE("a sweep goes from the least to the most, each size once") {
  CHECK(sweep_counts(8, 64, 2, 4) == Counts{2, 4, 8, 16});
  CHECK(sweep_counts(8, 63, 2, 4) == Counts{2, 4, 8});
  CHECK(sweep_counts(8, 8, 2, 4) == Counts{2});
  CHECK(sweep_counts(4, 15, 2, 4) == Counts{1, 2});
  CHECK(sweep_counts(2, 2048, 32, 2) == Counts{1, 32, 1024});
  CHECK(sweep_counts(10, 45, 2, 4) == Counts{2, 5, 10});  // whole numbers
  CHECK(sweep_counts(8, 1U << 27U, 2, 4).size() == 25);
  // No number is too large to multiply.
  CHECK(sweep_counts(8, kMostBytes, ~std::uint64_t{0}, 4) == Counts{2});
  CHECK(sweep_counts(kMostBytes, kMostBytes, 2, 4) == Counts{kMostBytes / 4});
}

TEST_CASE("the median is the middle, or between the two") {
  CHECK(median({3}) == 3);
  CHECK(median({9, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 100}) == 3);
}

TEST_CASE("bandwidths are nccl-tests'") {
  // 1 GB in 0.1 s: 10 GB/s; each of 4 ranks sends and receives 1.5 times the data.
  const Bandwidth four = all_reduce_bandwidth(1'000'000'000, 100'000, 4);
  CHECK(four.algorithm == Approx(10));
  CHECK(four.bus == Approx(15));
  const Bandwidth two = all_reduce_bandwidth(8, 2, 2);
  CHECK(two.algorithm == Approx(0.004));
  CHECK(two.bus == Approx(0.004));
  CHECK(all_reduce_bandwidth(8, 2, 1).bus == 0);
  CHECK(all_reduce_bandwidth(8, 0, 2).algorithm == 0);
}

}  // namespace muster::runtime
