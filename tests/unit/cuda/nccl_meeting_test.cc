// SPDX-License-Identifier: Apache-2.0
//
// How ranks meet: facts compared before NCCL is asked, ids of one generation, blocks of ranks.
#include "worker_runtime/cuda/nccl_meeting.h"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/nccl_ranks.h"

namespace muster::runtime::cuda {
namespace {

RankFacts facts_of(int rank) {
  return {.host = "alpha/b007",
          .device = "Fake GPU",
          .uuid = "GPU-" + std::to_string(rank),
          .pci_bus = "",
          .capability = 90,
          .driver = 580,
          .driver_cuda = 13000,
          .libraries_cuda = 13000,
          .nccl = 22809};
}

// What each rank's compare_ranks gives.
std::vector<absl::Status> compared(FakeStore& store, const std::vector<RankFacts>& facts, int size,
                                   Duration deadline = 60s) {
  std::vector<absl::Status> found(facts.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < facts.size(); ++rank)
    threads.emplace_back([&, rank] {
      found[rank] = compare_ranks(store, {static_cast<int>(rank), size, 1, deadline}, facts[rank]);
    });
  for (std::thread& thread : threads)
    thread.join();
  return found;
}

}  // namespace

TEST_CASE("ranks that fit are let through; those that do not all say the same line") {
  FakeStore store;
  for (const absl::Status& one : compared(store, {facts_of(0), facts_of(1), facts_of(2)}, 3))
    CHECK(one.ok());
  FakeStore second;
  const auto refused = compared(second, {facts_of(0), facts_of(1), facts_of(0)}, 3);
  for (const absl::Status& one : refused) {
    CHECK(one.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(one == refused[0]);
    CHECK(std::string(one.message()).starts_with("ranks 0 and 2 are on one GPU"));
  }
}

TEST_CASE("a rank that does not come is named on every rank") {
  FakeStore store;
  const auto found = compared(store, {facts_of(0), facts_of(1)}, 3, 30ms);
  for (const absl::Status& one : found) {
    CHECK(one.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(one.message() == "rank 2 did not come to NCCL's start within 30ms");
  }
}

TEST_CASE("a store that is gone is neither a misfit nor a deadline") {
  FakeStore store;
  store.fail(absl::AbortedError("stale"));
  CHECK(absl::IsAborted(compare_ranks(store, {1, 2, 1, 60s}, facts_of(1))));
  CHECK(absl::IsAborted(compare_ranks(store, {0, 2, 1, 60s}, facts_of(0))));
}

TEST_CASE("blocks of ranks are cut as NCCL cuts them") {
  CHECK(id_count(1, true) == 1);
  CHECK(id_count(256, true) == 1);
  CHECK(id_count(257, true) == 2);
  CHECK(id_count(2048, true) == 8);
  CHECK(id_count(2048, false) == 1);
  for (const int size : {257, 300, 511, 512, 513, 1000, 4096}) {
    const int blocks = id_count(size, true);
    // NCCL's own: ranks left over make the first blocks one longer.
    const int each = size / blocks;
    const int longer = size % blocks;
    for (int rank = 0; rank < size; ++rank) {
      const int block = rank < longer * (each + 1) ? rank / (each + 1)
                                                   : longer + (rank - longer * (each + 1)) / each;
      CHECK(first_rank_of_block(size, blocks, block) <= rank);
      if (block + 1 < blocks) CHECK(first_rank_of_block(size, blocks, block + 1) > rank);
    }
  }
}

TEST_CASE("ids are made once a generation, and the same on every rank") {
  const FakeDriver driver;
  const FakeNccl nccl;
  FakeStore store;
  const auto ids_of = [&](int rank, std::int64_t generation) {
    return share_ids(nccl.api(), store, {rank, 300, generation, 10s});
  };
  std::vector<NcclId> of_first;
  std::thread other([&] { of_first = must(ids_of(0, 7)); });
  const auto of_root = must(ids_of(150, 7));
  other.join();
  const auto of_last = must(ids_of(299, 7));
  REQUIRE(of_first.size() == 2);
  for (const auto& ids : {of_root, of_last}) {
    REQUIRE(ids.size() == 2);
    CHECK(std::memcmp(ids.data(), of_first.data(), 2 * sizeof(NcclId)) == 0);
  }
  CHECK(std::memcmp(of_first[0].bytes, of_first[1].bytes, sizeof(NcclId)) != 0);
  const auto again = ids_of(0, 7);
  CHECK(again.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(again.status().message() ==
        "generation 7 has had its NCCL communicator: ids are not reused");
  const auto missing = share_ids(nccl.api(), store, {299, 300, 8, 10ms});
  CHECK(missing.status().message() == "rank 0 did not publish its NCCL id within 10ms");
}

TEST_CASE("an older library has one id for all") {
  const FakeDriver driver;
  const FakeNccl nccl({.version = 22602});
  FakeStore store;
  CHECK(must(share_ids(nccl.api(), store, {0, 300, 1, 10s})).size() == 1);
}

}  // namespace muster::runtime::cuda
