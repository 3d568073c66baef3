// SPDX-License-Identifier: Apache-2.0
//
// Buckets beside backward: a bucket's collective waits for its own gradients and for nothing that
// is computed later, and computing waits for no collective until it needs the result. Read off the
// fake driver's log, where a lazy device runs only what somebody waits for.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/nccl_ranks.h"

namespace muster::runtime::cuda {
namespace {

using DevicePointer = std::shared_ptr<Device>;
using Log = std::vector<std::string>;

constexpr std::size_t kBuckets = 3;

// One rank's backward pass: each bucket is "computed" by clearing 8 · (b + 1) bytes, a size that
// names it in the log. Streams are numbered as they are made: compute first.
struct Backward {
  explicit Backward(const DevicePointer& device) {
    for (std::size_t b = 0; b < kBuckets; ++b) {
      data.push_back(must(device->allocate(8 * (b + 1))));
      ready.push_back(must(device->make_event()));
    }
  }
  void compute_bucket(Stream& stream, std::size_t b) {
    must(stream.zero(data[b].data(), data[b].size()));
    must(stream.record(*ready[b]));
  }
  std::uint64_t reduce_bucket(Communicator& comm, std::size_t b) {
    return must(comm.all_reduce(data[b].data(), 2 * (b + 1), kNcclF32, *ready[b]));
  }
  std::vector<Memory> data;
  std::vector<std::unique_ptr<Event>> ready;
};

std::ptrdiff_t place(const Log& log, const std::string& line) {
  return std::find(log.begin(), log.end(), line) - log.begin();
}
bool has(const Log& log, const std::string& line) {
  return std::find(log.begin(), log.end(), line) != log.end();
}

}  // namespace

TEST_CASE("a bucket is reduced before later gradients exist, and later gradients before it is") {
  Ranks ranks(2);
  Log early;   // when bucket 0 was over on rank 0
  Log beside;  // when all gradients were there on rank 0, before rank 1 came
  Log all;
  ranks.start(0, [&](int rank, const DevicePointer& device) {
    const auto compute = must(device->make_stream());
    ranks.signal("stream");
    ranks.await("stream 1");
    auto comm = must(ranks.connect(rank, device));
    const auto side = must(device->make_stream());
    Backward pass(device);
    ranks.driver.clear_log();
    // The watchdog looks at events too, and a lazy device runs what it asks for.
    for (std::size_t b = 0; b < kBuckets; ++b) {
      pass.compute_bucket(*compute, b);
      const std::uint64_t sequence = pass.reduce_bucket(*comm, b);
      if (b == 0) {
        ranks.signal("bucket 0");
        must(comm->join(*side, sequence));
        must(side->synchronize());
        early = ranks.driver.log();
      }
    }
    must(pass.ready.back()->wait());
    beside = ranks.driver.log();
    ranks.signal("computed");
    must(comm->join(*compute, kBuckets));
    must(compute->synchronize());
    all = ranks.driver.log();
    must(comm->close());
  });
  ranks.start(1, [&](int rank, const DevicePointer& device) {
    ranks.await("stream");
    const auto compute = must(device->make_stream());
    ranks.signal("stream 1");
    auto comm = must(ranks.connect(rank, device));
    Backward pass(device);
    ranks.await("bucket 0");
    for (std::size_t b = 0; b < kBuckets; ++b) {
      if (b == 1) ranks.await("computed");
      pass.compute_bucket(*compute, b);
      must(comm->join(*compute, pass.reduce_bucket(*comm, b)));
    }
    must(compute->synchronize());
    must(comm->close());
  });
  ranks.finish();
  // Rank 0 computes on s1 and rank 1 on s2; which communicator's stream is s3 is open.
  CHECK(has(early, "s1 set 8"));
  CHECK_FALSE(has(early, "s1 set 16"));
  CHECK((has(early, "s3 all_reduce 2") || has(early, "s4 all_reduce 2")));
  CHECK(has(beside, "s1 set 24"));
  CHECK_FALSE(has(beside, "s3 all_reduce 4"));
  CHECK_FALSE(has(beside, "s4 all_reduce 4"));
  for (std::size_t b = 0; b < kBuckets; ++b) {
    const std::string computed = " set " + std::to_string(8 * (b + 1));
    const std::string reduced = " all_reduce " + std::to_string(2 * (b + 1));
    // Each rank's collective begins after its own gradients, and ends after all have begun.
    CHECK(place(all, "s1" + computed) < static_cast<std::ptrdiff_t>(all.size()));
    for (const char* one : {"s3", "s4"}) {
      CHECK(place(all, one + reduced + " begins") < place(all, "s3" + reduced));
      CHECK(place(all, one + reduced + " begins") < place(all, "s4" + reduced));
    }
    const auto begin =
        std::max(place(all, "s3" + reduced + " begins"), place(all, "s4" + reduced + " begins"));
    CHECK(place(all, "s1" + computed) < begin);
    CHECK(place(all, "s2" + computed) < begin);
  }
}

TEST_CASE("collectives of one communicator never overtake each other") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Ranks ranks(2, FakeDriver::Pace::kRandom, seed, {.launch_polls = 1});
    ranks.start_all([&](int rank, const DevicePointer& device) {
      auto comm = must(ranks.connect(rank, device));
      const auto compute = must(device->make_stream());
      Backward pass(device);
      for (std::size_t b = 0; b < kBuckets; ++b)
        pass.compute_bucket(*compute, b);
      for (std::size_t b = 0; b < kBuckets; ++b)
        pass.reduce_bucket(*comm, b);
      must(comm->join(*compute, kBuckets));
      must(compute->synchronize());
      must(comm->close());
    });
    ranks.finish();
    Log reduced;
    for (const std::string& line : ranks.driver.log())
      if (line.find("all_reduce") != std::string::npos && !line.ends_with("begins")) {
        reduced.push_back(line.substr(line.find(' ') + 1));
      }
    CHECK(reduced == Log{"all_reduce 2", "all_reduce 2", "all_reduce 4", "all_reduce 4",
                         "all_reduce 6", "all_reduce 6"});
  }
}

}  // namespace muster::runtime::cuda
