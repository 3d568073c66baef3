// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/data/dataset.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "worker_runtime/data/digest.h"
#include "worker_runtime/data/order.h"

namespace muster::runtime {
namespace {

std::shared_ptr<Corpus> counting(std::size_t bytes) {
  auto corpus = std::make_shared<Corpus>();
  corpus->path = "counting";
  for (std::size_t i = 0; i < bytes; ++i)
    corpus->bytes.push_back(static_cast<std::uint8_t>(i));
  return corpus;
}

std::string refusal(std::size_t bytes, const DatasetOptions& options) {
  const auto dataset = Dataset::make(counting(bytes), options);
  return dataset.ok() ? "" : std::string(dataset.status().message());
}

TEST_CASE("every epoch is a permutation, for any count") {
  for (const std::uint64_t count : {1, 2, 3, 4, 5, 7, 16, 17, 255, 256, 257, 1000, 4097}) {
    for (const std::uint64_t epoch : {0, 1, 2}) {
      std::set<std::uint64_t> seen;
      for (std::uint64_t i = 0; i < count; ++i)
        seen.insert(permuted(i, count, 7, epoch));
      INFO(count << " " << epoch);
      CHECK(seen.size() == count);
      CHECK(*seen.rbegin() == count - 1);
    }
  }
}

TEST_CASE("the order depends on seed and epoch and is spread out") {
  constexpr std::uint64_t kCount = 1000;
  int fixed_seed = 0;
  int fixed_epoch = 0;
  int neighbours = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    fixed_seed += permuted(i, kCount, 1, 0) == permuted(i, kCount, 2, 0) ? 1 : 0;
    fixed_epoch += permuted(i, kCount, 1, 0) == permuted(i, kCount, 1, 1) ? 1 : 0;
    const std::uint64_t next = permuted((i + 1) % kCount, kCount, 1, 0);
    neighbours += next == permuted(i, kCount, 1, 0) + 1 ? 1 : 0;
  }
  // One of each is expected of random permutations; ten would be one in ten million.
  CHECK(fixed_seed < 10);
  CHECK(fixed_epoch < 10);
  CHECK(neighbours < 10);
}

TEST_CASE("the order is pinned: a change needs a new version") {
  std::string text;
  for (std::uint64_t i = 0; i < 64; ++i)
    text += std::to_string(permuted(i, 64, 42, 3)) + " ";
  CHECK(kOrderVersion == 1);
  CHECK(hex64(digest64(text)) == "bad986dc873f7acb");
}

TEST_CASE("windows overlap by the token that is predicted next") {
  const auto dataset =
      Dataset::make(counting(101), {.n_ctx = 10, .vocab_size = 256, .validation = 0.25, .seed = 3});
  REQUIRE(dataset.ok());
  CHECK(dataset->validation_windows() == 2);
  CHECK(dataset->train_windows() == 8);
  std::vector<std::int32_t> tokens(22);
  dataset->validation_batch(0, 2, tokens);
  CHECK(tokens.front() == 80);
  CHECK(tokens[10] == 90);
  CHECK(tokens[11] == 90);
  CHECK(tokens.back() == 100);
}

TEST_CASE("a batch may span epochs and takes every window once an epoch") {
  const auto dataset =
      Dataset::make(counting(101), {.n_ctx = 10, .vocab_size = 256, .validation = 0.25, .seed = 3});
  REQUIRE(dataset.ok());
  std::vector<std::int32_t> tokens(16 * 11);
  dataset->train_batch(4, 16, tokens);  // the second half of epoch 0, epoch 1, half of epoch 2
  std::multiset<std::int32_t> starts;
  for (std::size_t row = 4; row < 12; ++row)
    starts.insert(tokens[row * 11]);
  CHECK(starts == std::multiset<std::int32_t>{0, 10, 20, 30, 40, 50, 60, 70});
  for (std::uint64_t sample = 0; sample < 40; ++sample)
    CHECK(dataset->window_of(sample) < 8);
}

TEST_CASE("what does not fit is refused with the need") {
  CHECK_THAT(refusal(20, {.n_ctx = 10, .vocab_size = 256}),
             Catch::Contains("counting has 20 bytes") && Catch::Contains("at least 21"));
  CHECK(refusal(21, {.n_ctx = 10, .vocab_size = 256}).empty());
  CHECK_THAT(refusal(10, {.n_ctx = 10, .vocab_size = 256, .validation = 0}),
             Catch::Contains("at least 11"));
  CHECK(refusal(11, {.n_ctx = 10, .vocab_size = 256, .validation = 0}).empty());
  CHECK_THAT(refusal(100, {.n_ctx = 10, .vocab_size = 255}),
             Catch::Contains("/model/vocab_size >= 256; it is 255"));
}

TEST_CASE("digests are XXH3's") {
  // The published values for empty input.
  CHECK(hex64(digest64(std::string_view())) == "2d06800538d394c2");
  CHECK(Digest128().hex() == "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace muster::runtime
