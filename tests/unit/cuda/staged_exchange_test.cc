// SPDX-License-Identifier: Apache-2.0
//
// The exchange over host memory: its sums have the bits of the CPU's all-reduce, on every wire and
// at any pace of the device; what is added moves once; and buckets overlap.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/gpu/zero_peer.h"
#include "tests/unit/cuda/nccl_ranks.h"
#include "tests/unit/numerics/random.h"
#include "worker_runtime/collectives/local.h"
#include "worker_runtime/collectives/ops.h"
#include "worker_runtime/cuda/engine/exchange.h"
#include "worker_runtime/numerics/reduce.h"

namespace muster::runtime::cuda {
namespace {

using Pace = FakeDriver::Pace;
using Parts = std::vector<std::vector<float>>;  // by rank

constexpr std::size_t kBlock = numerics::kNormBlock;
// Slices of unlike length, of whole blocks and not, and ranks that add nothing.
const std::vector<Bucket> kBuckets = {{0, kBlock}, {kBlock, 3 * kBlock}, {4 * kBlock, kBlock + 77}};
const std::size_t kElements = kBuckets.back().end();
const ExchangeRoom kRoom{kElements, 3 * kBlock};
const WireType kWires[] = {WireType::kF32, WireType::kBf16, WireType::kF16};

// Large numbers, small ones, and the large ones' negatives, so that the order shows; one beyond
// what FP16 holds.
Parts parts_of(int ranks) {
  Parts parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const float size = rank % 3 == 0 ? 8e3F : rank % 3 == 1 ? 1e-3F : -8e3F;
    parts.push_back(
        random_values<float>(kElements, static_cast<std::uint64_t>(rank / 3) + 1, size));
    parts.back()[5] = 1e5F;
  }
  return parts;
}

void on_threads(int ranks, const std::function<void(Collectives&)>& body) {
  LocalGroup group(ranks, 1, std::chrono::seconds(60));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { body(*group.member(rank)); });
  for (std::thread& thread : threads)
    thread.join();
}

Parts summed_by_the_host(Parts parts, WireType wire) {
  on_threads(static_cast<int>(parts.size()), [&](Collectives& group) {
    std::vector<float>& mine = parts[static_cast<std::size_t>(group.rank())];
    for (const Bucket& bucket : kBuckets) {
      must(all_reduce_sum(group, std::span(mine).subspan(bucket.offset, bucket.count), wire, kBlock,
                          0));
    }
  });
  return parts;
}

// One rank's, `steps` times over the same numbers; the last sums into `part`.
absl::Status sum_on_device(const std::shared_ptr<Device>& device, Collectives& group, WireType wire,
                           std::uint64_t layout_hash, std::vector<float>& part, int steps = 1) {
  const auto compute = must(device->make_stream());
  const auto staged = must(make_staged_exchange(device, group, wire, layout_hash, kRoom));
  const std::size_t bytes = part.size() * sizeof(float);
  const Memory sum = must(device->allocate(bytes));
  for (int i = 0; i < steps; ++i) {
    must(compute->copy_to_device(sum.data(), part.data(), bytes));
    for (const Bucket& bucket : kBuckets)
      must(staged->start(bucket, sum.as<float>() + bucket.offset, *compute));
    const absl::Status finished = staged->finish(*compute);
    if (!finished.ok()) return finished;
  }
  must(compute->copy_to_host(part.data(), sum.data(), bytes));
  must(compute->synchronize());
  return absl::OkStatus();
}

Parts summed_by_devices(Parts parts, WireType wire, FakeDriver::Options options, bool share) {
  const int ranks = static_cast<int>(parts.size());
  options.devices = ranks;
  FakeDriver driver(options);
  on_threads(ranks, [&](Collectives& group) {
    const int rank = group.rank();
    const auto device = must(Device::open(driver.api(), share ? 0 : rank, FakeDriver::images()));
    must(sum_on_device(device, group, wire, 0, parts[static_cast<std::size_t>(rank)], 2));
  });
  CHECK(driver.alive() == 0);
  return parts;
}

std::size_t count_of(const std::vector<std::string>& log, const std::string& word) {
  return static_cast<std::size_t>(
      std::count_if(log.begin(), log.end(),
                    [&](const std::string& line) { return line.find(word) != std::string::npos; }));
}

// Of all copies of this kind.
std::size_t bytes_of(const std::vector<std::string>& log, const std::string& kind) {
  std::size_t bytes = 0;
  for (const std::string& line : log) {
    const std::size_t at = line.find(kind + " ");
    if (at != std::string::npos) bytes += std::stoul(line.substr(at + kind.size() + 1));
  }
  return bytes;
}

// What the device has done before each exchange between hosts.
class Watched : public gpu_check::ZeroPeer {
 public:
  explicit Watched(const FakeDriver& driver) : driver_(driver) {}
  absl::Status exchange(const OperationKey& key, std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> recv) override {
    const std::vector<std::string> log = driver_.log();
    operations.push_back(key.operation);
    arrived.push_back(count_of(log, "to_host") - count_of(log, "muster_reduce_slices"));
    added.push_back(count_of(log, "muster_reduce_slices"));
    return ZeroPeer::exchange(key, send, recv);
  }
  std::vector<Operation> operations;
  std::vector<std::size_t> arrived, added;

 private:
  const FakeDriver& driver_;
};

}  // namespace

TEST_CASE("what devices add over host memory has the bits of the CPU's all-reduce") {
  for (const int ranks : {1, 2, 3, 5}) {
    const Parts parts = parts_of(ranks);
    for (const WireType wire : kWires) {
      INFO(ranks << " ranks, wire " << static_cast<int>(wire));
      const Parts want = summed_by_the_host(parts, wire);
      for (const bool share : {false, true}) {
        const Parts got = summed_by_devices(parts, wire, {.pace = Pace::kLazy}, share);
        for (std::size_t rank = 0; rank < parts.size(); ++rank)
          CHECK(same_bits(got[rank], want[rank]));
      }
      const Parts other = summed_by_devices(parts, wire, {.pace = Pace::kRandom, .seed = 9}, false);
      CHECK(same_bits(other.front(), want.front()));
    }
  }
}

TEST_CASE("nothing of a bucket crosses between device and host twice, and 16 bits cross as such") {
  for (const WireType wire : kWires) {
    FakeDriver driver;
    const auto device = must(Device::open(driver.api(), 0, FakeDriver::images()));
    gpu_check::ZeroPeer group;
    const std::size_t number = wire == WireType::kF32 ? 4 : 2;
    std::vector<float> part = parts_of(1).front();
    must(sum_on_device(device, group, wire, 0, part));
    const std::vector<std::string> log = driver.log();
    const std::size_t own = kElements * sizeof(float);  // the test's own copies
    // The other's slices and the sum of the own one; the other's parts of the own slice and its
    // sums.
    CHECK(bytes_of(log, "to_host") - own == kElements * number);
    CHECK(bytes_of(log, "to_device") - own == kElements * number);
    CHECK(count_of(log, "muster_reduce_slices") == kBuckets.size());
  }
}

TEST_CASE("while a bucket is on the network, others arrive and are added") {
  FakeDriver driver({.pace = Pace::kEager});
  const auto device = must(Device::open(driver.api(), 0, FakeDriver::images()));
  Watched group(driver);
  std::vector<float> part = parts_of(1).front();
  const std::vector<float> before = part;
  must(sum_on_device(device, group, WireType::kF32, 0, part));
  CHECK(same_bits(part, before));  // the peer's are zeroes
  using enum Operation;
  CHECK(group.operations == std::vector<Operation>{kAllReduce, kAllReduce, kAllGather, kAllReduce,
                                                   kAllGather, kAllGather});
  CHECK(group.arrived.front() == 2);  // of the first bucket the peer adds nothing
  CHECK(group.added == std::vector<std::size_t>{0, 1, 2, 2, 3, 3});
}

TEST_CASE("ranks with other layouts are told before anything moves") {
  FakeDriver driver({.devices = 2});
  std::vector<absl::Status> ends(2);
  on_threads(2, [&](Collectives& group) {
    const int rank = group.rank();
    const auto device = must(Device::open(driver.api(), rank, FakeDriver::images()));
    std::vector<float> part(kElements);
    ends[static_cast<std::size_t>(rank)] =
        sum_on_device(device, group, WireType::kF32, static_cast<std::uint64_t>(rank), part);
  });
  for (const absl::Status& end : ends)
    CHECK(absl::IsFailedPrecondition(end));
  CHECK(driver.alive() == 0);
}

}  // namespace muster::runtime::cuda
