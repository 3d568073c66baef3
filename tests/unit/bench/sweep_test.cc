// SPDX-License-Identifier: Apache-2.0
//
// Sweeps whose ranks are threads: in host memory, and on devices through the fakes by either
// exchange; with sums that are spoilt on the way, or never taken.
#include "worker_runtime/bench/sweep.h"

#include <functional>
#include <memory>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/nccl_ranks.h"
#include "worker_runtime/collectives/local.h"

namespace muster::runtime {
namespace {

using cuda::must;

const std::vector<std::uint64_t> kCounts = {1, 2, 100, 20000};
const cuda::ExchangeRoom kRoom{kCounts.back(), kCounts.back()};
const WireType kTypes[] = {WireType::kF32, WireType::kBf16, WireType::kF16};

SweepOptions options(WireType type = WireType::kF32) {
  return {.counts = kCounts, .type = type, .iterations = 3, .warmup = 1};
}

// A group that turns a bit in the last number of what arrives from a rank in all-reduces.
class Spoilt : public Collectives {
 public:
  Spoilt(Collectives& inner, int from) : inner_(inner), from_(from) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::int64_t generation() const override { return inner_.generation(); }
  int lost_peer() const override { return inner_.lost_peer(); }
  absl::Status exchange(const OperationKey& key, std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> recv) override {
    const absl::Status status = inner_.exchange(key, send, recv);
    const auto& arrived = recv[static_cast<std::size_t>(from_)];
    if (key.operation == Operation::kAllReduce && !arrived.empty())
      arrived.back() ^= std::byte{0x40};
    return status;
  }

 private:
  Collectives& inner_;
  int from_;
};

// Leaves the numbers as they are.
class Lazy : public SumTarget {
 public:
  explicit Lazy(std::unique_ptr<SumTarget> inner) : inner_(std::move(inner)) {}
  absl::Status fill(std::size_t count, std::uint64_t round) override {
    return inner_->fill(count, round);
  }
  absl::Status sum(std::size_t) override { return absl::OkStatus(); }
  absl::StatusOr<std::uint64_t> wrong(std::size_t count, std::uint64_t round) override {
    return inner_->wrong(count, round);
  }

 private:
  std::unique_ptr<SumTarget> inner_;
};

struct StopAfter : Overseer {
  explicit StopAfter(int calls) : calls_left(calls) {}
  bool stop_requested() override { return --calls_left < 0; }
  int calls_left;
};

using RankSweep = std::function<absl::StatusOr<SweepResult>(Collectives&)>;

// What every rank got.
std::vector<absl::StatusOr<SweepResult>> on_threads(int size, const RankSweep& sweep) {
  LocalGroup group(size, 3);
  std::vector<absl::StatusOr<SweepResult>> results(static_cast<std::size_t>(size),
                                                   absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto member = group.member(rank);
      results[static_cast<std::size_t>(rank)] = sweep(*member);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  return results;
}

absl::StatusOr<SweepResult> in_host_memory(Collectives& group, Collectives& way,
                                           const SweepOptions& options) {
  const Pattern pattern(group.rank(), group.size(), options.type);
  const auto target = make_host_target(way, options.type, pattern, kCounts.back());
  Overseer overseer;
  return run_sweep(group, *target, options, overseer, [](const SweepRow&) {});
}

void check_right(const std::vector<absl::StatusOr<SweepResult>>& results, WireType type) {
  for (const auto& result : results) {
    REQUIRE(result.ok());
    REQUIRE(result->rows.size() == kCounts.size());
    CHECK(result->all_wrong() == 0);
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      const SweepRow& row = result->rows[i];
      CHECK(row.count == kCounts[i]);
      CHECK(row.bytes == kCounts[i] * wire_type_bytes(type));
      CHECK(row.time_us > 0);
      CHECK(row.time_us == results[0]->rows[i].time_us);
      CHECK(row.bandwidth.algorithm > 0);
    }
  }
}

enum class Way { kStaged, kNccl, kNone };

std::vector<absl::StatusOr<SweepResult>> on_devices(cuda::Ranks& ranks, int size, Way way,
                                                    WireType type) {
  return on_threads(size, [&](Collectives& group) -> absl::StatusOr<SweepResult> {
    const int rank = group.rank();
    const auto device =
        must(cuda::Device::open(ranks.driver.api(), rank, cuda::FakeDriver::images()));
    std::unique_ptr<cuda::GradientExchange> exchange = cuda::make_no_exchange();
    if (way == Way::kStaged) {
      exchange = must(cuda::make_staged_exchange(device, group, type, 0, kRoom));
    } else if (way == Way::kNccl) {
      exchange =
          must(cuda::make_nccl_exchange(device, must(ranks.connect(rank, device)), type, kRoom));
    }
    const Pattern pattern(rank, size, type);
    const auto target =
        must(make_device_target(device, std::move(exchange), pattern, kCounts.back()));
    Overseer overseer;
    auto result = run_sweep(group, *target, options(type), overseer, [](const SweepRow&) {});
    must(target->close());
    return result;
  });
}

}  // namespace

TEST_CASE("in host memory every size is added right and told alike on all ranks") {
  for (const WireType type : kTypes) {
    for (const int size : {1, 2, 3}) {
      INFO(wire_type_name(type) << ", " << size << " ranks");
      check_right(on_threads(size,
                             [&](Collectives& group) {
                               return in_host_memory(group, group, options(type));
                             }),
                  type);
    }
  }
}

TEST_CASE("on devices either exchange adds right") {
  for (const WireType type : kTypes) {
    for (const Way way : {Way::kStaged, Way::kNccl}) {
      for (const int size : {2, 3}) {
        INFO(wire_type_name(type) << ", " << size << " ranks, way " << static_cast<int>(way));
        cuda::Ranks ranks(size, cuda::FakeDriver::Pace::kRandom);
        check_right(on_devices(ranks, size, way, type), type);
      }
    }
  }
  cuda::Ranks ranks(1);
  check_right(on_devices(ranks, 1, Way::kNone, WireType::kF32), WireType::kF32);
}

TEST_CASE("a bit that turns on the way is found, on every rank that has it") {
  // Rank 0 adds the first norm block's numbers. Spoilt there, what rank 1 sends is wrong for all;
  // spoilt at rank 1, what rank 0 sends is wrong only there (but for the second block's numbers,
  // which rank 1 adds).
  for (const auto& [at, from] : {std::pair{0, 1}, {1, 0}}) {
    for (const WireType type : kTypes) {
      INFO(wire_type_name(type) << ", at rank " << at);
      const auto results = on_threads(3, [&, at = at, from = from](Collectives& group) {
        Spoilt spoilt(group, from);
        return in_host_memory(group, group.rank() == at ? static_cast<Collectives&>(spoilt) : group,
                              options(type));
      });
      for (const auto& result : results) {
        REQUIRE(result.ok());
        for (std::size_t i = 0; i < 3; ++i)
          CHECK(result->rows[i].wrong == (at == 0 ? 3 : 1));
        CHECK(result->rows[3].wrong > 0);
        CHECK(result->wrong[static_cast<std::size_t>(at)] >= kCounts.size());
        CHECK(result->wrong[2] == (at == 0 ? kCounts.size() : 1));
      }
    }
  }
}

TEST_CASE("sums that nobody took are wrong, in host memory and on devices") {
  const auto results = on_threads(2, [&](Collectives& group) -> absl::StatusOr<SweepResult> {
    const Pattern pattern(group.rank(), 2, WireType::kF32);
    Lazy target(make_host_target(group, WireType::kF32, pattern, kCounts.back()));
    Overseer overseer;
    return run_sweep(group, target, options(), overseer, [](const SweepRow&) {});
  });
  cuda::Ranks ranks(2);
  for (const auto& all : {results, on_devices(ranks, 2, Way::kNone, WireType::kF32)}) {
    for (const auto& result : all) {
      REQUIRE(result.ok());
      for (const SweepRow& row : result->rows)
        CHECK(row.wrong == 2 * row.count);
    }
  }
}

TEST_CASE("wrong sums of NCCL are found, and where") {
  cuda::Ranks ranks(2, cuda::FakeDriver::Pace::kLazy, 1, {.spoils = 1});
  for (const auto& result : on_devices(ranks, 2, Way::kNccl, WireType::kF32)) {
    REQUIRE(result.ok());
    CHECK(result->wrong == std::vector<std::uint64_t>{0, kCounts.size()});
  }
}

TEST_CASE("asked to stop, one rank ends all of them after the same size") {
  const auto results = on_threads(3, [&](Collectives& group) -> absl::StatusOr<SweepResult> {
    const Pattern pattern(group.rank(), 3, WireType::kF32);
    const auto target = make_host_target(group, WireType::kF32, pattern, kCounts.back());
    StopAfter overseer(group.rank() == 1 ? 1 : 1000);
    std::size_t told = 0;
    auto result = run_sweep(group, *target, options(), overseer, [&](const SweepRow&) { ++told; });
    if (result.ok() && told != result->rows.size()) return absl::InternalError("rows not told");
    return result;
  });
  for (const auto& result : results) {
    REQUIRE(result.ok());
    CHECK(result->stopped);
    CHECK(result->rows.size() == 2);
  }
}

TEST_CASE("a lost rank ends the sweep with the group's error") {
  LocalGroup group(2, 3);
  const auto member = group.member(0);
  group.lose(1);
  CHECK(absl::IsUnavailable(in_host_memory(*member, *member, options()).status()));
}

}  // namespace muster::runtime
