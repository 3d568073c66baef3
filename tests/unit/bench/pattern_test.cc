// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bench/pattern.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <catch2/catch.hpp>

#include "worker_runtime/numerics/half.h"

namespace muster::runtime {
namespace {

float through(WireType type, float value) {
  if (type == WireType::kBf16) return numerics::to_float(numerics::to_bf16(value));
  if (type == WireType::kF16) return numerics::to_float(numerics::to_f16(value));
  return value;
}

const WireType kTypes[] = {WireType::kF32, WireType::kBf16, WireType::kF16};

std::vector<float> sums(const Pattern& pattern, std::size_t count, std::uint64_t round) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = pattern.sum(i, round);
  return all;
}

}  // namespace

TEST_CASE("no sum over ranks needs rounding, in whatever order, with few ranks or very many") {
  for (const WireType type : kTypes) {
    for (const int size : {1, 2, 3, 8, 100, 256, 257, 700}) {
      INFO(static_cast<int>(type) << ", " << size << " ranks");
      const Pattern last(size - 1, size, type);
      std::size_t inexact = 0;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < Pattern::kPeriod; ++i) {
        float up = 0;
        float down = 0;
        float magnitudes = 0;  // the worst that some order can come to
        double exact = 0;
        for (int rank = 0; rank < size; ++rank) {
          const float value = Pattern::value(rank, size, type, i);
          up = through(type, up + value);
          down = through(type, down + Pattern::value(size - 1 - rank, size, type, i));
          magnitudes = through(type, magnitudes + std::abs(value));
          exact += std::abs(static_cast<double>(value));
        }
        inexact += static_cast<double>(magnitudes) == exact ? 0 : 1;
        wrong += up == last.sum(i, 0) && down == up ? 0 : 1;
        wrong += last.own(i, 0) == Pattern::value(size - 1, size, type, i) ? 0 : 1;
      }
      CHECK(inexact == 0);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("all ranks expect the same, and each adds something of its own") {
  std::vector<Pattern> all;
  for (int rank = 0; rank < 5; ++rank)
    all.emplace_back(rank, 5, WireType::kBf16);
  std::set<std::vector<float>> own;
  for (const Pattern& one : all) {
    CHECK(sums(one, 100, 7) == sums(all[0], 100, 7));
    const std::vector<float> numbers = one.repeated(1);
    CHECK(std::all_of(numbers.begin(), numbers.end(), [](float x) { return x != 0; }));
    own.insert(numbers);
  }
  CHECK(own.size() == 5);
}

TEST_CASE("with more ranks than the type has numbers every rank still adds something") {
  for (const int rank : {0, 1, 255, 256, 699}) {
    const std::vector<float> numbers = Pattern(rank, 700, WireType::kBf16).repeated(1);
    CHECK(std::count(numbers.begin(), numbers.end(), 0.0F) <
          static_cast<std::ptrdiff_t>(Pattern::kPeriod * 3 / 4));
  }
}

TEST_CASE("the stock holds what every round needs, one behind the other") {
  const Pattern pattern(1, 3, WireType::kF32);
  const std::vector<float> stock = pattern.repeated(3);
  REQUIRE(stock.size() == 3 * Pattern::kPeriod);
  for (const std::uint64_t round : {0UL, 1UL, 4098UL, 4099UL, 123456789UL}) {
    const std::size_t start = Pattern::start(round);
    REQUIRE(start < Pattern::kPeriod);
    for (std::size_t i = 0; i < 2 * Pattern::kPeriod; i += 97)
      CHECK(stock[start + i] == pattern.own(i, round));
  }
}

TEST_CASE("right sums are right, and every kind of wrong one is counted") {
  for (const WireType type : kTypes) {
    const Pattern pattern(0, 2, type);
    const std::size_t count = 3 * Pattern::kPeriod + 11;
    const std::vector<float> good = sums(pattern, count, 5);
    CHECK(pattern.count_wrong(good, 0, 5) == 0);
    CHECK(pattern.count_wrong(std::span(good).subspan(5000), 5000, 5) == 0);
    CHECK(pattern.count_wrong({}, 0, 5) == 0);

    std::vector<float> bad = good;
    bad[0] += 1;
    bad[count - 1] = -bad[count - 1] - 1;
    bad[17] = std::numeric_limits<float>::quiet_NaN();
    CHECK(pattern.count_wrong(bad, 0, 5) == 3);
    // One bit.
    bad = good;
    bad[4000] = std::nextafter(bad[4000], 1000.0F);
    CHECK(pattern.count_wrong(bad, 0, 5) == 1);
    // Of another round, of another place, not added at all, one rank's twice.
    CHECK(pattern.count_wrong(good, 0, 4) > count / 2);
    CHECK(pattern.count_wrong(std::span(good).first(8192), 8192, 5) > 4096);
    std::vector<float> own(count);
    for (std::size_t i = 0; i < count; ++i)
      own[i] = pattern.own(i, 5);
    CHECK(pattern.count_wrong(own, 0, 5) == count);
    for (std::size_t i = 0; i < count; ++i)
      own[i] += good[i];
    CHECK(pattern.count_wrong(own, 0, 5) == count);
  }
}

}  // namespace muster::runtime
