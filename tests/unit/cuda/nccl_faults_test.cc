// SPDX-License-Identifier: Apache-2.0
//
// The communicator when something fails, threads and all: who ends with which code, what stands in
// the store, and that nothing waits for a peer, a store or NCCL for ever. Only the test moves the
// clock.
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/cuda/nccl_ranks.h"

namespace muster::runtime::cuda {
namespace {

using DevicePointer = std::shared_ptr<Device>;

// A rank that reduces `steps` times and waits for each, as a training loop does; gives the
// communicator's word on whether to believe the result.
absl::Status train(Ranks& ranks, Communicator& comm, const DevicePointer& device, int rank,
                   int steps, std::size_t count = 4) {
  const auto compute = must(device->make_stream());
  const auto ready = must(device->make_event());
  const Memory data = must(device->allocate(4 * count));
  must(compute->zero(data.data(), data.size()));
  for (int step = 0; step < steps; ++step) {
    must(compute->record(*ready));
    const auto sequence = comm.all_reduce(data.data(), count, kNcclF32, *ready);
    ranks.signal("rank " + std::to_string(rank));
    if (!sequence.ok()) return sequence.status();
    const absl::Status joined = comm.join(*compute, *sequence);
    if (!joined.ok()) return joined;
    must(compute->synchronize());
    if (!comm.status().ok()) break;
  }
  return comm.status();
}

void wait_until_begun(const FakeDriver& driver, const std::string& what) {
  for (;;) {
    for (const std::string& line : driver.log())
      if (line.ends_with(what)) return;
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("a rank that does not come to a collective: deadline here, victims elsewhere") {
  Ranks ranks(3);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    MUSTER_CHECK(train(ranks, *comm, device, rank, rank == 2 ? 1 : 2).ok() == (rank == 2));
    if (rank == 2) ranks.await("over");
  });
  // Both others sit in their second all-reduce, which the device has begun.
  ranks.await("rank 0", 2);
  ranks.await("rank 1", 2);
  const auto begun = [&] {
    int count = 0;
    for (const std::string& line : ranks.driver.log())
      count += line.ends_with("all_reduce 4 begins") ? 1 : 0;
    return count == 5;
  };
  while (!begun())
    std::this_thread::yield();
  ranks.pass_until_failure(10s);
  const RankEnd first = ranks.wait_for_end(0);
  const RankEnd second = ranks.wait_for_end(1);
  ranks.signal("over");
  ranks.finish();
  // One of them was first; the other, and the one that did not come, are its victims.
  const RankEnd& primary = first.secondary ? second : first;
  const RankEnd& victim = first.secondary ? first : second;
  const int culprit = first.secondary ? 1 : 0;
  CHECK(primary.exit_code == 83);
  const std::string late = "all-reduce 2 (f32 x 4) did not end within 5m";
  CHECK(primary.message == late + "; rank 2 has not come to it");
  CHECK(victim ==
        RankEnd{81, "rank " + std::to_string(culprit) + " failed first: " + late, true, culprit});
  const auto told = ranks.ends(2).failed;
  if (!told.empty()) CHECK(told.front().peer == culprit);
}

TEST_CASE("an asynchronous error ends its rank, and the store tells the others") {
  struct Case {
    NcclResult error;
    int code;
  };
  for (const Case& c : {Case{kNcclRemoteError, 81}, Case{kNcclCudaError, 85},
                        Case{kNcclInternalError, 70}, Case{kNcclInvalidUsage, 82}}) {
    CAPTURE(c.error);
    Ranks ranks(2);
    ranks.nccl.fail_at(1, 3, c.error);
    ranks.start_all([&](int rank, const DevicePointer& device) {
      auto comm = ranks.connect_all(rank, device);
      MUSTER_CHECK(!train(ranks, *comm, device, rank, 4).ok());
    });
    const RankEnd last = ranks.wait_for_end(1);
    const RankEnd other = ranks.wait_for_end(0);
    ranks.finish();
    // Said first; if rank 0 was late, that was found out afterwards.
    const RankEnd own = ranks.ends(1).failed.front();
    CHECK((last.message == own.message ||
           last.message == own.message + "; rank 0 has not come to it"));
    CHECK(last.exit_code == c.code);
    CHECK(own.exit_code == c.code);
    CHECK(own.secondary == (c.code == 81));
    CHECK(own.message.starts_with("NCCL: "));
    CHECK(own.message.ends_with("all-reduce 3 (f32 x 4)"));
    CHECK(other.exit_code == 81);
    CHECK(other.secondary);
    CHECK(other.peer == (c.code == 81 ? -1 : 1));
    CHECK(other.message == "rank 1 failed first: " + own.message);
    const auto written = must(ranks.store.get(nccl_key(3, "failed"), 0s));
    CHECK(written == cause_line({1, 3, own}));
    CHECK(ranks.ends(1).ended.size() == 1);
    CHECK(ranks.ends(0).ended.size() == 1);
    CHECK(ranks.nccl.alive() == 0);
  }
}

TEST_CASE("an abort that hangs does not keep the process") {
  Ranks ranks(2);
  ranks.nccl.fail_at(1, 1, kNcclCudaError);
  ranks.nccl.hold_aborts();
  ranks.start_all([&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    (void)train(ranks, *comm, device, rank, 1);
  });
  ranks.nccl.wait_for_aborts(2);
  CHECK(ranks.ends(1).ended.empty());
  ranks.clock.advance(6s);
  const RankEnd own = ranks.wait_for_end(1);
  CHECK(own.exit_code == 85);
  CHECK(own.message.ends_with("its communicator's abort did not return within 5s"));
  CHECK(ranks.wait_for_end(0).exit_code == 81);
  ranks.nccl.release();
  ranks.finish();
}

TEST_CASE("a thread that never comes back from NCCL keeps neither the abort's deadline nor us") {
  Ranks ranks(2);
  ranks.nccl.hold_calls(0);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    (void)train(ranks, *comm, device, rank, 1);
  });
  wait_until_begun(ranks.driver, "all_reduce 4 begins");  // rank 1's
  ranks.pass_until_failure(10s);
  CHECK((ranks.wait_for_end(1).exit_code == 81 || ranks.wait_for_end(1).exit_code == 83));
  // Rank 0 knows who was first, and waits for the abort.
  const auto settled = [&] {
    const auto told = ranks.ends(0).failed;
    return told.size() == 2 || (told.size() == 1 && told[0].exit_code == 81);
  };
  while (!settled())
    std::this_thread::yield();
  CHECK(ranks.ends(0).ended.empty());
  ranks.clock.advance(6s);
  const int codes = ranks.wait_for_end(0).exit_code + ranks.wait_for_end(1).exit_code;
  CHECK(codes == 81 + 83);
  ranks.nccl.release();
  ranks.finish();
}

TEST_CASE("a collective that NCCL never launches is not taken for the one before it in its place") {
  Ranks ranks(1);
  ranks.nccl.never_launch(0, 9);  // of eight places it has the first's
  ranks.start(0, [&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    MUSTER_CHECK(absl::IsDeadlineExceeded(train(ranks, *comm, device, rank, 9)));
  });
  ranks.await("rank 0", 8);
  ranks.pass_until_failure(10s);
  CHECK(ranks.wait_for_end(0) ==
        RankEnd{83, "all-reduce 9 (f32 x 4) did not begin within 5m", false, -1});
}

TEST_CASE("a process whose training thread sits in a stream ends with the code all the same") {
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Ranks ranks(2);
    ranks.start_all([&](int rank, const DevicePointer& device) {
      CommunicatorOptions options = ranks.options(rank);
      if (rank == 0) options.end = [](const RankEnd& end) { ::_exit(end.exit_code); };
      auto comm = must(Communicator::connect(ranks.nccl.api(), device, ranks.store, options));
      if (rank == 0) (void)train(ranks, *comm, device, rank, 1);
      ranks.await("never");
    });
    wait_until_begun(ranks.driver, "all_reduce 4 begins");
    ranks.pass_until_failure(10s);
    ranks.await("never");
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 83);
}

TEST_CASE("a store that does not answer, or answers with errors, delays the end and no more") {
  const bool frozen = GENERATE(true, false);
  Ranks ranks(1);
  ranks.nccl.fail_at(0, 1, kNcclRemoteError);
  ranks.start(0, [&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    if (frozen) {
      ranks.store.freeze(true);
    } else {
      ranks.store.fail(absl::UnavailableError("gone"));
    }
    (void)train(ranks, *comm, device, rank, 1);
  });
  CHECK(ranks.wait_for_failure(0).exit_code == 81);
  if (frozen) {
    CHECK(ranks.nccl.aborts() == 0);
    ranks.clock.advance(3s);
  }
  const RankEnd end = ranks.wait_for_end(0);
  CHECK(end.exit_code == 81);
  CHECK(end.secondary);
  CHECK(end.peer == -1);
  ranks.store.freeze(false);
  ranks.finish();
  CHECK(ranks.nccl.aborts() == 1);
}

TEST_CASE("ranks that disagree hang in NCCL; the deadline ends them, and they say in what") {
  Ranks ranks(2);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    MUSTER_CHECK(!train(ranks, *comm, device, rank, 1, rank == 0 ? 4 : 8).ok());
  });
  wait_until_begun(ranks.driver, "all_reduce 4 begins");
  wait_until_begun(ranks.driver, "all_reduce 8 begins");
  ranks.pass_until_failure(10s);
  const RankEnd ends[] = {ranks.wait_for_end(0), ranks.wait_for_end(1)};
  ranks.finish();
  const int culprit = ends[0].secondary ? 1 : 0;
  const std::string counts[] = {"4)", "8)"};
  CHECK(ends[culprit] == RankEnd{82,
                                 "all-reduce 1 (f32 x " + counts[culprit] +
                                     " did not end within 5m; rank " + std::to_string(1 - culprit) +
                                     " came to it with all-reduce 1 (f32 x " + counts[1 - culprit],
                                 false, -1});
  CHECK(ends[1 - culprit].exit_code == 81);
  CHECK(ends[1 - culprit].peer == culprit);
}

TEST_CASE("asked to stop, a rank whose peers are gone leaves after two seconds") {
  Ranks ranks(2);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    if (rank == 0) (void)train(ranks, *comm, device, rank, 1);
    if (rank == 1) ranks.await("over");
  });
  wait_until_begun(ranks.driver, "all_reduce 4 begins");
  ranks.stopping = true;
  ranks.pass_until_failure(500ms);
  const RankEnd end = ranks.wait_for_end(0);
  ranks.signal("over");
  ranks.finish();
  CHECK(end.exit_code == 81);
  CHECK(
      end.message ==
      "asked to stop, but no other rank came to all-reduce 1 (f32 x 4); rank 1 has not come to it");
}

TEST_CASE("a rank that does not answer is named as the lost peer") {
  Ranks ranks(3);
  ranks.nccl.fail_at(0, 1, kNcclRemoteError);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    CommunicatorOptions options = ranks.options(rank);
    options.answers = 50ms;
    auto comm = must(Communicator::connect(ranks.nccl.api(), device, ranks.store, options));
    ranks.signal("up");
    ranks.await("up", 3);
    if (rank == 2) {
      comm.reset();  // as if killed: nobody hears of it
      ranks.signal("gone");
    } else {
      ranks.await("gone");
      (void)train(ranks, *comm, device, rank, 1);
    }
  });
  const RankEnd first = ranks.wait_for_end(0);
  ranks.finish();
  CHECK(first.exit_code == 81);
  CHECK(first.peer == 2);
  CHECK(first.message.ends_with("all-reduce 1 (f32 x 4); rank 2 does not answer"));
}

TEST_CASE("a communicator that never comes up ends with the deadline") {
  Ranks ranks(2);
  ranks.nccl.never_ready(1);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    const auto comm = ranks.connect(rank, device);
    MUSTER_CHECK(absl::IsDeadlineExceeded(comm.status()) || absl::IsUnavailable(comm.status()));
  });
  ranks.pass_until_failure(10s);
  const int codes = ranks.wait_for_end(0).exit_code + ranks.wait_for_end(1).exit_code;
  CHECK(codes == 81 + 83);
  ranks.finish();
  CHECK(ranks.nccl.alive() == 0);
}

TEST_CASE("a rank whose device has not come to the collective is told from a peer's lateness") {
  Ranks ranks(2);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    // What is queued before waits for another communicator's collective, which has time.
    CommunicatorOptions before = ranks.options(rank);
    before.generation = 4;
    before.limits.collective = 24h;
    auto blocker = must(Communicator::connect(ranks.nccl.api(), device, ranks.store, before));
    CommunicatorOptions options = ranks.options(rank);
    if (rank == 1) options.limits.collective = 24h;
    const auto comm = must(Communicator::connect(ranks.nccl.api(), device, ranks.store, options));
    const auto compute = must(device->make_stream());
    const auto ready = must(device->make_event());
    const Memory data = must(device->allocate(32));
    if (rank == 0) {
      must(compute->record(*ready));
      const auto stuck = must(blocker->all_reduce(data.data(), 4, kNcclF32, *ready));
      must(blocker->join(*compute, stuck));
    }
    must(compute->record(*ready));
    must(comm->all_reduce(data.as<float>() + 4, 4, kNcclF32, *ready));
    ranks.signal("queued");
    (void)ranks.wait_for_end(0);
    blocker.reset();  // lets the device go on
  });
  ranks.await("queued", 2);
  ranks.pass_until_failure(10s);
  const RankEnd end = ranks.wait_for_end(0);
  ranks.finish();
  CHECK(end.exit_code == 85);
  CHECK(
      end.message.starts_with("the device did not come to all-reduce 1 (f32 x 4) within 5m: "
                              "what was queued before it is still running"));
}

TEST_CASE("a call that makes a communicator and does not return ends with the deadline too") {
  Ranks ranks(2);
  ranks.nccl.hold_init(1);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    const auto comm = ranks.connect(rank, device);
    MUSTER_CHECK(absl::IsDeadlineExceeded(comm.status()) || absl::IsUnavailable(comm.status()));
  });
  ranks.pass_until_failure(10s);
  CHECK((ranks.wait_for_failure(1).exit_code == 81 || ranks.wait_for_failure(1).exit_code == 83));
  // Rank 1's abort cannot begin while its thread is inside.
  ranks.pass_until_ended(1s);
  const int codes = ranks.wait_for_end(0).exit_code + ranks.wait_for_end(1).exit_code;
  CHECK(codes == 81 + 83);
  ranks.nccl.release();
  ranks.finish();
  CHECK(ranks.nccl.alive() == 0);
}

TEST_CASE("a call that destroys a communicator and does not return ends with the deadline") {
  Ranks ranks(1);
  ranks.nccl.hold_destroy(0);
  ranks.start(0, [&](int rank, const DevicePointer& device) {
    auto comm = ranks.connect_all(rank, device);
    MUSTER_CHECK(train(ranks, *comm, device, rank, 1).ok());
    ranks.signal("trained");
    MUSTER_CHECK(absl::IsDeadlineExceeded(comm->close()));
  });
  ranks.await("trained");
  ranks.pass_until_ended(10s);
  const RankEnd end = ranks.wait_for_end(0);
  CHECK(end.exit_code == 83);
  CHECK(end.message.starts_with("NCCL's communicator was not closed within 5m"));
  ranks.nccl.release();
  ranks.finish();
  CHECK(ranks.nccl.alive() == 0);
}

TEST_CASE("versions that differ and GPUs that are shared are refused before NCCL is asked") {
  const bool duplicate = GENERATE(true, false);
  Ranks ranks(2);
  ranks.start_all([&](int rank, const DevicePointer& device) {
    CommunicatorOptions options = ranks.options(rank);
    if (duplicate) {
      options.facts.uuid = "GPU-0";
    } else if (rank == 1) {
      options.facts.nccl = 22705;
    }
    const auto comm = Communicator::connect(ranks.nccl.api(), device, ranks.store, options);
    MUSTER_CHECK(comm.status().code() == absl::StatusCode::kFailedPrecondition);
    const std::string words(comm.status().message());
    MUSTER_CHECK(words.starts_with(duplicate ? "ranks 0 and 1 are on one GPU"
                                             : "rank 1 (alpha, Fake GPU) has NCCL 2.27.5"));
  });
  ranks.finish();
  CHECK_FALSE(ranks.store.get(nccl_key(3, "id/0"), 0s).ok());
  CHECK(ranks.nccl.alive() == 0);
}

TEST_CASE("a shared GPU that the facts did not show is NCCL's to refuse, in its words") {
  Ranks ranks(2);
  ranks.start_all([&](int rank, const DevicePointer&) {
    const auto same = must(Device::open(ranks.driver.api(), 0, FakeDriver::images()));
    MUSTER_CHECK(!ranks.connect(rank, same).ok());
  });
  ranks.finish();
  const RankEnd ends[] = {ranks.wait_for_end(0), ranks.wait_for_end(1)};
  const RankEnd& primary = ends[0].secondary ? ends[1] : ends[0];
  CHECK(primary == RankEnd{82, "NCCL: invalid usage: Duplicate GPU detected", false, -1});
}

TEST_CASE("an id cannot be used for a second communicator") {
  Ranks ranks(1);
  ranks.start(0, [&](int rank, const DevicePointer& device) {
    must(must(ranks.connect(rank, device))->close());
    const auto again = ranks.connect(rank, device);
    MUSTER_CHECK(again.status().code() == absl::StatusCode::kFailedPrecondition);
  });
  ranks.finish();
  CHECK(ranks.nccl.alive() == 0);
}

}  // namespace muster::runtime::cuda
