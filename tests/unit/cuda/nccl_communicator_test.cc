// SPDX-License-Identifier: Apache-2.0
//
// The communicator when nothing fails: it comes up, adds, gathers, scatters and closes, over ranks
// that are threads, in whatever order the devices run.
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/nccl_ranks.h"
#include "worker_runtime/cuda/communicator.h"
#include "worker_runtime/cuda/kernels/pack.h"

namespace muster::runtime::cuda {
namespace {

using Pace = FakeDriver::Pace;
using DevicePointer = std::shared_ptr<Device>;

struct Setting {
  int ranks;
  Pace pace;
  std::uint64_t seed;
  int launch_polls;
};

const std::vector<Setting> kSettings{{2, Pace::kLazy, 1, 0},   {3, Pace::kEager, 1, 0},
                                     {4, Pace::kLazy, 1, 3},   {2, Pace::kRandom, 1, 2},
                                     {3, Pace::kRandom, 2, 0}, {4, Pace::kRandom, 3, 1}};

template <class T>
std::vector<T> to_host(Stream& stream, const Memory& memory) {
  std::vector<T> values(memory.size() / sizeof(T));
  must(stream.copy_to_host(values.data(), memory.data(), memory.size()));
  must(stream.synchronize());
  return values;
}

}  // namespace

TEST_CASE("sums of all ranks arrive everywhere, whatever the order of things") {
  for (const Setting& s : kSettings) {
    CAPTURE(s.ranks, static_cast<int>(s.pace), s.seed, s.launch_polls);
    std::vector<std::vector<float>> results(static_cast<std::size_t>(s.ranks));
    {
      Ranks ranks(s.ranks, s.pace, s.seed, {.launch_polls = s.launch_polls});
      ranks.start_all([&](int rank, const DevicePointer& device) {
        auto comm = ranks.connect_all(rank, device);
        const auto compute = must(device->make_stream());
        const auto ready = must(device->make_event());
        const Memory data = must(device->allocate(40));
        // More of them than there are places for.
        for (int round = 0; round < 20; ++round) {
          std::vector<float> mine(10);
          for (std::size_t i = 0; i < mine.size(); ++i)
            mine[i] = static_cast<float>((rank + 1) * 100 + round) + static_cast<float>(i) / 8;
          must(compute->copy_to_device(data.data(), mine.data(), 40));
          must(compute->record(*ready));
          const std::uint64_t sequence = must(comm->all_reduce(data.data(), 10, kNcclF32, *ready));
          MUSTER_CHECK(sequence == static_cast<std::uint64_t>(round) + 1);
          must(comm->join(*compute, sequence));
        }
        results[static_cast<std::size_t>(rank)] = to_host<float>(*compute, data);
        must(comm->close());
        MUSTER_CHECK(comm->state() == CommunicatorState::kGone);
      });
      ranks.finish();
      CHECK(ranks.nccl.alive() == 0);
      CHECK(ranks.nccl.aborts() == 0);
      CHECK(ranks.ends(0).ended.empty());
      CHECK(ranks.driver.alive() == 0);
    }
    for (std::size_t i = 0; i < 10; ++i) {
      float want = 0;
      for (int rank = 0; rank < s.ranks; ++rank)
        want += static_cast<float>((rank + 1) * 100 + 19) + static_cast<float>(i) / 8;
      for (const auto& result : results)
        REQUIRE(result[i] == want);
    }
  }
}

TEST_CASE("parts are scattered and gathered in rank order, and a root's word goes to all") {
  constexpr int kRanks = 3;
  Ranks ranks(kRanks, Pace::kRandom, 5);
  std::vector<std::vector<float>> sums(kRanks);
  std::vector<std::vector<std::uint16_t>> words(kRanks);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    const auto compute = must(device->make_stream());
    const auto ready = must(device->make_event());
    const Memory data = must(device->allocate(24));
    const Memory word = must(device->allocate(4));
    const std::vector<float> mine{1, 2, 3, 4, 5, static_cast<float>(rank)};
    const std::vector<std::uint16_t> own{static_cast<std::uint16_t>(rank), 9};
    must(compute->copy_to_device(data.data(), mine.data(), 24));
    must(compute->copy_to_device(word.data(), own.data(), 4));
    must(compute->record(*ready));
    must(comm->reduce_scatter(data.data(), 2, kNcclF32, *ready));
    must(comm->all_gather(data.data(), 2, kNcclF32, *ready));
    must(comm->join(*compute, must(comm->broadcast(word.data(), 2, kNcclBf16, 2, *ready))));
    sums[static_cast<std::size_t>(rank)] = to_host<float>(*compute, data);
    words[static_cast<std::size_t>(rank)] = to_host<std::uint16_t>(*compute, word);
    must(comm->close());
  });
  ranks.finish();
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    CHECK(sums[rank] == std::vector<float>{3, 6, 9, 12, 15, 3});
    CHECK(words[rank] == std::vector<std::uint16_t>{2, 9});
  }
}

TEST_CASE("16-bit sums are added in FP32 and rounded once by the fake") {
  Ranks ranks(2, Pace::kLazy);
  std::vector<std::uint16_t> got;
  ranks.start_all([&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    const auto compute = must(device->make_stream());
    const auto ready = must(device->make_event());
    const Memory data = must(device->allocate(2));
    const std::uint16_t bits = numerics::to_bf16(rank == 0 ? 256.0F : 1.5F).bits;
    must(compute->copy_to_device(data.data(), &bits, 2));
    must(compute->record(*ready));
    must(comm->join(*compute, must(comm->all_reduce(data.data(), 1, kNcclBf16, *ready))));
    const auto mine = to_host<std::uint16_t>(*compute, data);
    if (rank == 0) got = mine;
    must(comm->close());
  });
  ranks.finish();
  CHECK(to_number(Bf16{got[0]}) == 258.0F);
}

TEST_CASE("a slow start is waited for; a communicator that is left behind is aborted") {
  Ranks ranks(2, Pace::kLazy, 1, {.initial_polls = 200});
  ranks.start_all([&](int rank, const DevicePointer& device) {
    const auto comm = ranks.connect_all(rank, device);
    MUSTER_CHECK(comm->state() == CommunicatorState::kReady);
  });
  ranks.finish();
  CHECK(ranks.nccl.aborts() == 2);
  CHECK(ranks.nccl.alive() == 0);
  CHECK(ranks.driver.alive() == 0);
}

TEST_CASE("what a rank does wrong itself is refused at the call, and ends it") {
  Ranks ranks(1);
  ranks.start(0, [&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    const auto compute = must(device->make_stream());
    const auto ready = must(device->make_event());
    const Memory data = must(device->allocate(16));
    must(compute->record(*ready));
    const auto done = comm->all_reduce(data.data(), 5, kNcclF32, *ready);
    MUSTER_CHECK(done.status().code() == absl::StatusCode::kFailedPrecondition);
    MUSTER_CHECK(comm->status() == done.status());
    MUSTER_CHECK(comm->join(*compute, 1) == done.status());
    MUSTER_CHECK(comm->close() == done.status());
  });
  const RankEnd end = ranks.wait_for_end(0);
  CHECK(end == RankEnd{82, "NCCL: invalid argument, at all-reduce 1 (f32 x 5)", false, -1});
}

TEST_CASE("more than 256 ranks come up with an id a block") {
  // The fake knows that many ranks as names only: what is checked is what NCCL is asked for.
  const FakeDriver driver;
  FakeNccl nccl;
  FakeStore store;
  const NcclApi api = nccl.api();
  const Meeting meeting{0, 300, 1, 10s};
  std::thread root([&] { must(share_ids(api, store, {150, 300, 1, 10s})); });
  auto ids = must(share_ids(api, store, meeting));
  root.join();
  const auto device = must(Device::open(driver.api(), 0, FakeDriver::images()));
  NcclConfig config = nccl_config(api.version, "wide");
  NcclComm comm = nullptr;
  CHECK(api.ncclCommInitRankScalable(&comm, 300, 0, 2, ids.data(), &config) == kNcclInProgress);
  CHECK(nccl.scalable_ids() == 2);
  api.ncclCommAbort(comm);
}

}  // namespace muster::runtime::cuda
