// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/collectives/ops.h"

#include <cmath>
#include <future>

#include <catch2/catch.hpp>

#include "proto/base/rng.h"
#include "tests/unit/collectives/groups.h"
#include "worker_runtime/numerics/half.h"

namespace muster::runtime {
namespace {

using numerics::to_bf16;
using numerics::to_f16;
using numerics::to_float;

std::vector<float> random_vector(std::size_t count, std::uint64_t seed, float scale = 1.0F) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(rng.unit() * 2 - 1) * scale;
  return values;
}

// Results of all ranks, by rank; Catch2's checks are made by one thread afterwards.
template <typename T>
class PerRank {
 public:
  explicit PerRank(int size) : values_(static_cast<std::size_t>(size)) {}
  T& operator[](int rank) { return values_[static_cast<std::size_t>(rank)]; }
  const std::vector<T>& all() const { return values_; }

 private:
  std::vector<T> values_;
};

using Runner = void (*)(int, const RankBody&);
void over_local(int size, const RankBody& body) {
  run_local(size, body);
}

// Debian's gloo is not instrumented: under ThreadSanitizer its own synchronisation would look
// like races, so only the threads' backend is run there.
#if defined(__SANITIZE_THREAD__)
const std::vector<Runner> kBackends{over_local};
#else
void over_tcp(int size, const RankBody& body) {
  run_tcp(size, body);
}
const std::vector<Runner> kBackends{over_local, over_tcp};
#endif

TEST_CASE("leaves are dealt contiguously, floor or ceil, longer first") {
  for (const std::uint64_t leaves : {0U, 1U, 3U, 8U, 17U}) {
    for (const int size : {1, 2, 3, 5, 20}) {
      std::uint64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const LeafRange range = leaf_range(leaves, size, rank);
        CHECK(range.first == next);
        CHECK(range.count >= leaves / static_cast<std::uint64_t>(size));
        CHECK(range.count <= leaves / static_cast<std::uint64_t>(size) + 1);
        next += range.count;
      }
      CHECK(next == leaves);
    }
  }
}

TEST_CASE("maximal subtrees cover a range without overlap and cannot be joined") {
  for (std::uint64_t first = 0; first < 20; ++first) {
    for (std::uint64_t count = 0; count < 20; ++count) {
      const std::vector<Subtree> subtrees = maximal_subtrees(first, count);
      std::uint64_t next = first;
      for (const Subtree& subtree : subtrees) {
        CHECK(subtree.first == next);
        CHECK(subtree.first % subtree.width == 0);
        const std::uint64_t parent = subtree.first - subtree.first % (subtree.width * 2);
        const bool parent_fits = parent >= first && parent + subtree.width * 2 <= first + count;
        CHECK_FALSE(parent_fits);
        next += subtree.width;
      }
      CHECK(next == first + count);
    }
  }
}

TEST_CASE("all_reduce adds in rank order on every backend, uneven slices and all") {
  const Runner runner = GENERATE(from_range(kBackends));
  const int size = GENERATE(1, 2, 3, 5);
  const std::size_t count = GENERATE(0U, 1U, 63U, 1000U);
  INFO("size " << size << " count " << count);
  std::vector<float> expected = random_vector(count, 100);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> term = random_vector(count, 100 + static_cast<std::uint64_t>(rank));
    for (std::size_t i = 0; i < count; ++i)
      expected[i] += term[i];
  }
  PerRank<std::vector<float>> results(size);
  PerRank<absl::Status> statuses(size);
  runner(size, [&](Collectives& group) {
    std::vector<float> data = random_vector(count, 100 + static_cast<std::uint64_t>(group.rank()));
    statuses[group.rank()] = all_reduce_sum(group, data, WireType::kF32, 64, 7);
    results[group.rank()] = data;
  });
  for (int rank = 0; rank < size; ++rank) {
    CHECK(statuses[rank].ok());
    CHECK(results[rank] == expected);
  }
}

TEST_CASE("a 16-bit all_reduce adds in FP32 and rounds once") {
  const int size = 4;
  const std::size_t count = 500;
  PerRank<std::vector<float>> results(size);
  const WireType wire = GENERATE(WireType::kBf16, WireType::kF16);
  const auto round = [wire](float value) {
    return wire == WireType::kBf16 ? to_float(to_bf16(value)) : to_float(to_f16(value));
  };
  run_local(size, [&](Collectives& group) {
    std::vector<float> data = random_vector(count, static_cast<std::uint64_t>(group.rank()), 100);
    if (!all_reduce_sum(group, data, wire, 64, 0).ok()) data.clear();
    results[group.rank()] = data;
  });
  std::vector<float> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < size; ++rank) {
      const float term = round(random_vector(count, static_cast<std::uint64_t>(rank), 100)[i]);
      sum = rank == 0 ? term : sum + term;
    }
    expected[i] = round(sum);
  }
  for (const std::vector<float>& result : results.all())
    CHECK(result == expected);
}

// Sums of a rank's leaves into its maximal subtrees, by the definition.
std::vector<float> subtree_sum(const std::vector<std::vector<float>>& leaves, std::uint64_t first,
                               std::uint64_t width) {
  if (width == 1) return leaves[first];
  std::vector<float> left = subtree_sum(leaves, first, width / 2);
  const std::vector<float> right = subtree_sum(leaves, first + width / 2, width / 2);
  for (std::size_t i = 0; i < left.size(); ++i)
    left[i] += right[i];
  return left;
}

TEST_CASE("the tree sum has the same bits at every world size") {
  const std::uint64_t leaf_count = GENERATE(1U, 2U, 3U, 7U, 8U, 13U);
  const std::size_t length = 130;
  std::vector<std::vector<float>> leaves;
  for (std::uint64_t leaf = 0; leaf < leaf_count; ++leaf) {
    leaves.push_back(random_vector(length, leaf, std::exp2(static_cast<float>(leaf % 5))));
  }
  std::vector<std::vector<float>> seen;
  for (const int size : {1, 2, 3, 4, 9}) {
    PerRank<std::vector<float>> results(size);
    run_local(size, [&](Collectives& group) {
      const LeafRange range = leaf_range(leaf_count, group.size(), group.rank());
      std::vector<std::vector<float>> sums;
      for (const Subtree& subtree : maximal_subtrees(range.first, range.count)) {
        sums.push_back(subtree_sum(leaves, subtree.first, subtree.width));
      }
      const std::vector<std::span<const float>> views(sums.begin(), sums.end());
      std::vector<float> result(length);
      if (!all_reduce_tree(group, leaf_count, views, result, 64, 0).ok()) result.clear();
      results[group.rank()] = result;
    });
    for (const std::vector<float>& result : results.all())
      seen.push_back(result);
  }
  for (const std::vector<float>& result : seen)
    CHECK(result == seen.front());
  for (std::size_t i = 0; i < length; ++i) {
    double exact = 0;
    for (const std::vector<float>& leaf : leaves)
      exact += static_cast<double>(leaf[i]);
    CHECK(static_cast<double>(seen.front()[i]) == Approx(exact).margin(1e-4));
  }
}

TEST_CASE("broadcast, all_gather and barrier move bytes") {
  const Runner runner = GENERATE(from_range(kBackends));
  const int size = 3;
  PerRank<std::string> heard(size);
  PerRank<std::vector<std::vector<std::byte>>> gathered(size);
  PerRank<int> good(size);
  runner(size, [&](Collectives& group) {
    std::string text = group.rank() == 1 ? "from rank 1" : "           ";
    bool fine = broadcast(group, 1, std::as_writable_bytes(std::span(text))).ok();
    const std::vector<std::byte> mine(static_cast<std::size_t>(group.rank()) * 2,
                                      static_cast<std::byte>(group.rank()));
    auto all = all_gather(group, mine);
    fine = fine && all.ok() && barrier(group).ok();
    if (all.ok()) gathered[group.rank()] = *all;
    heard[group.rank()] = text;
    good[group.rank()] = fine ? 1 : 0;
  });
  for (int rank = 0; rank < size; ++rank) {
    CHECK(good[rank] == 1);
    CHECK(heard[rank] == "from rank 1");
    REQUIRE(gathered[rank].size() == 3);
    for (std::size_t from = 0; from < 3; ++from) {
      CHECK(gathered[rank][from] == std::vector<std::byte>(from * 2, static_cast<std::byte>(from)));
    }
  }
}

TEST_CASE("the control all-reduce decides alike everywhere") {
  const int size = 3;
  PerRank<absl::StatusOr<Control>> results(size);
  run_local(size, [&](Collectives& group) {
    Control mine;
    mine.found_inf = group.rank() == 2;
    if (group.rank() > 0) mine.first_bad = (std::uint64_t{9} << 32U) | std::uint64_t(group.rank());
    mine.stop = group.rank() == 1;
    mine.tokens = 10;
    mine.micro_losses = {0.5 * group.rank(), 1.0};
    mine.norm_partials = {static_cast<double>(group.rank())};
    mine.fingerprint = 42;
    results[group.rank()] = control_all_reduce(group, mine);
  });
  for (int rank = 0; rank < size; ++rank) {
    REQUIRE(results[rank].ok());
    const Control& all = *results[rank];
    CHECK(all.found_inf);
    CHECK(all.stop);
    CHECK(all.first_bad == ((std::uint64_t{9} << 32U) | 1U));
    CHECK(all.tokens == 30);
    CHECK(all.loss_sum == 4.5);
    CHECK(all.norm_partials == std::vector<double>{0, 1, 2});
    CHECK(all.micro_losses == std::vector<double>{0, 1, 0.5, 1, 1, 1});
  }
}

TEST_CASE("a differing fingerprint is named on every rank") {
  PerRank<absl::Status> statuses(2);
  run_local(2, [&](Collectives& group) {
    Control mine;
    mine.fingerprint = static_cast<std::uint64_t>(group.rank());
    statuses[group.rank()] = control_all_reduce(group, mine).status();
  });
  for (const absl::Status& status : statuses.all()) {
    CHECK(error_exit_code(status) == 82);
  }
}

TEST_CASE("a mismatch is a named error on both sides, on every backend") {
  const Runner runner = GENERATE(from_range(kBackends));
  PerRank<absl::Status> statuses(2);
  runner(2, [&](Collectives& group) {
    if (!barrier(group).ok()) return;
    std::vector<float> data(group.rank() == 0 ? 100 : 90);
    statuses[group.rank()] = all_reduce_sum(group, data, WireType::kF32, 64, 7);
    // Poisoned from here on.
    if (barrier(group) != statuses[group.rank()]) statuses[group.rank()] = absl::OkStatus();
  });
  for (const absl::Status& status : statuses.all()) {
    CHECK(error_exit_code(status) == 82);
    CHECK(std::string(status.message()).find("sequence 1") != std::string::npos);
    CHECK(std::string(status.message()).find("rank 1") != std::string::npos);
  }
}

TEST_CASE("different operations and types are mismatches") {
  PerRank<absl::Status> statuses(2);
  const bool by_type = GENERATE(true, false);
  run_local(2, [&](Collectives& group) {
    std::vector<float> data(128);
    if (group.rank() == 0) {
      statuses[0] = all_reduce_sum(group, data, WireType::kF32, 64, 7);
    } else if (by_type) {
      statuses[1] = all_reduce_sum(group, data, WireType::kBf16, 64, 7);
    } else {
      statuses[1] = barrier(group);
    }
  });
  for (const absl::Status& status : statuses.all())
    CHECK(error_exit_code(status) == 82);
}

TEST_CASE("a peer that goes away is named, on every backend") {
  const Runner runner = GENERATE(from_range(kBackends));
  PerRank<absl::Status> statuses(3);
  PerRank<int> lost(3);
  runner(3, [&](Collectives& group) {
    absl::Status status = barrier(group);
    if (group.rank() == 2) return;  // leaves: its end is destroyed
    while (status.ok())
      status = barrier(group);
    statuses[group.rank()] = status;
    lost[group.rank()] = group.lost_peer();
  });
  for (int rank = 0; rank < 2; ++rank)
    CHECK(error_exit_code(statuses[rank]) == 81);
  // Who sees whose end first is a race between the two survivors; one of them names rank 2.
  CHECK((lost[0] == 2 || lost[1] == 2));
}

TEST_CASE("a peer that stays silent runs into the deadline") {
  PerRank<absl::Status> statuses(2);
  std::promise<void> rank_0_is_done;
  run_local(
      2,
      [&](Collectives& group) {
        if (group.rank() == 0) {
          statuses[0] = barrier(group);
          rank_0_is_done.set_value();
        } else {
          rank_0_is_done.get_future().wait();
          statuses[1] = barrier(group);
        }
      },
      std::chrono::milliseconds(50));
  CHECK(error_exit_code(statuses[0]) == 83);
  CHECK(error_exit_code(statuses[1]) == 81);  // finds rank 0 gone
}

TEST_CASE("a lost rank fails its peers and itself") {
  LocalGroup group(2, 0);
  std::vector<absl::Status> statuses(2);
  std::thread one([&] {
    const auto member = group.member(0);
    statuses[0] = barrier(*member);
  });
  group.lose(1);
  one.join();
  const auto member = group.member(1);
  statuses[1] = barrier(*member);
  CHECK(error_exit_code(statuses[0]) == 81);
  CHECK(error_exit_code(statuses[1]) == 81);
}

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("an address that is not there is an error in words") {
  SharedStore store;
  TcpOptions options = tcp_options(0, 2, std::chrono::seconds(1));
  options.connect_timeout = std::chrono::milliseconds(100);
  const auto alone = connect_tcp(options, store);
  REQUIRE_FALSE(alone.ok());
  CHECK(absl::IsDeadlineExceeded(alone.status()));
  CHECK(address_towards("127.0.0.1").value() == "127.0.0.1");
  CHECK_FALSE(address_towards("no-such-host.invalid").ok());
}
#endif

}  // namespace
}  // namespace muster::runtime
