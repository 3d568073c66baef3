// SPDX-License-Identifier: Apache-2.0
//
// The communicator's decisions: every state, every fault, every deadline to the tick; and a great
// many random lives of it.
#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "proto/base/rng.h"
#include "worker_runtime/cuda/communicator_core.h"

namespace muster::runtime::cuda {
namespace {

using State = CommunicatorState;
using Action = CommunicatorAction;

constexpr CommunicatorLimits kLimits{60s, 300s, 2s, 3s, 5s};

Instant at(Duration time) {
  return {time};
}

Sight sight(Duration now, NcclResult result = kNcclSuccess) {
  Sight seen;
  seen.now = at(now);
  seen.result = result;
  return seen;
}

// A rank in the middle of its run: five collectives, of which two are over.
struct Running {
  CommunicatorCore core{1, kLimits, 8};
  Sight seen = sight(10s);

  Running() {
    core.begin(at(0s));
    REQUIRE(core.look(sight(1s)) == Action::kReady);
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t s = core.enqueue(NcclOperation::kAllReduce, kNcclF32, 4096, at(10s));
      core.launched(s, at(10s));
    }
    seen.started = 3;
    seen.finished = 2;
    REQUIRE(core.look(seen) == Action::kNothing);
  }
  Action look(Duration now) {
    seen.now = at(now);
    return core.look(seen);
  }
};

FirstCause cause_of(int rank, int code, bool secondary = false, int peer = -1) {
  return {rank, 3, {code, "why", secondary, peer}};
}

}  // namespace

TEST_CASE("a communicator becomes ready when NCCL says so, and is closed in order") {
  CommunicatorCore core(0, kLimits, 4);
  CHECK(core.state() == State::kCreated);
  CHECK(core.look(sight(0s)) == Action::kNothing);
  core.begin(at(5s));
  CHECK(core.state() == State::kInitialising);
  CHECK(core.look(sight(6s, kNcclInProgress)) == Action::kNothing);
  CHECK(core.look(sight(65s, kNcclInProgress)) == Action::kNothing);
  CHECK(core.look(sight(65s)) == Action::kReady);
  CHECK(core.state() == State::kReady);
  CHECK(core.look(sight(1000s)) == Action::kNothing);  // nothing outstanding: no deadline
  core.closed();
  CHECK(core.state() == State::kGone);
  CHECK(core.look(sight(2000s)) == Action::kNothing);
  CHECK(core.end() == RankEnd{});
}

TEST_CASE("a communicator that is closed waits for the others for a while") {
  CommunicatorCore core(0, kLimits, 4);
  core.begin(at(0s));
  REQUIRE(core.look(sight(1s)) == Action::kReady);
  core.closing(at(1000s));
  CHECK(core.look(sight(1100s, kNcclInProgress)) == Action::kNothing);
  SECTION("its deadline") {
    CHECK(core.look(sight(1300s, kNcclInProgress)) == Action::kNothing);
    CHECK(core.look(sight(1301s, kNcclInProgress)) == Action::kPublish);
    CHECK(core.end().exit_code == 83);
    CHECK(core.end().message == "NCCL's communicator was not closed within 5m");
  }
  SECTION("asked to stop") {
    Sight stop = sight(1200s, kNcclInProgress);
    stop.stop = true;
    CHECK(core.look(stop) == Action::kNothing);
    stop.now = at(1202s);
    CHECK(core.look(stop) == Action::kNothing);
    stop.now = at(1203s);
    CHECK(core.look(stop) == Action::kPublish);
    CHECK(core.end().exit_code == 81);
  }
}

TEST_CASE("initialisation that takes too long, or fails, ends with the right code") {
  struct Case {
    NcclResult result;
    int code;
    bool secondary;
  };
  for (const Case& c : {Case{kNcclRemoteError, 81, true}, Case{kNcclSystemError, 81, true},
                        Case{kNcclInvalidUsage, 82, false}, Case{kNcclInvalidArgument, 82, false},
                        Case{kNcclCudaError, 85, false}, Case{kNcclInternalError, 70, false}}) {
    CommunicatorCore core(0, kLimits, 4);
    core.begin(at(0s));
    Sight seen = sight(1s, c.result);
    seen.words = "words";
    CHECK(core.look(seen) == Action::kPublish);
    CHECK(core.state() == State::kFailed);
    CHECK(core.end() == RankEnd{c.code, "NCCL: words", c.secondary, -1});
    CHECK(core.cause().sequence == 0);
  }
  CommunicatorCore core(0, kLimits, 4);
  core.begin(at(5s));
  CHECK(core.look(sight(65s + 1ns, kNcclInProgress)) == Action::kPublish);
  CHECK(core.end() == RankEnd{83, "NCCL's communicator was not ready within 1m", false, -1});
}

TEST_CASE("a collective has its deadline from the moment that it could have begun") {
  Running r;
  // Progress at 10 s; another at 200 s puts the deadline off.
  CHECK(r.look(309s) == Action::kNothing);
  r.seen.started = 4;
  r.seen.finished = 3;
  CHECK(r.look(310s) == Action::kNothing);
  CHECK(r.look(610s) == Action::kNothing);
  CHECK(r.look(610s + 1ns) == Action::kPublish);
  CHECK(r.core.end() == RankEnd{83, "all-reduce 4 (f32 x 4096) did not end within 5m", false, -1});
  CHECK(r.core.cause().sequence == 4);
  CHECK(r.core.cause().rank == 1);
}

TEST_CASE("a device that is still computing is not a peer that is late") {
  Running r;
  r.seen.started = r.seen.finished = 3;
  CHECK(r.look(20s) == Action::kNothing);
  r.seen.stop = true;
  CHECK(r.look(100s) == Action::kNothing);
  CHECK(r.look(320s + 1ns) == Action::kPublish);
  CHECK(r.core.end().exit_code == 85);
  CHECK(r.core.end().message ==
        "the device did not come to all-reduce 4 (f32 x 4096) within 5m: what was queued before "
        "it is still running");
}

TEST_CASE("a collective that NCCL never launches has a deadline too") {
  CommunicatorCore core(0, kLimits, 4);
  core.begin(at(0s));
  REQUIRE(core.look(sight(0s)) == Action::kReady);
  core.enqueue(NcclOperation::kReduceScatter, kNcclBf16, 64, at(50s));
  CHECK(core.look(sight(350s, kNcclInProgress)) == Action::kNothing);
  CHECK(core.look(sight(350s + 1ns, kNcclInProgress)) == Action::kPublish);
  CHECK(core.end().exit_code == 83);
  CHECK(core.end().message == "reduce-scatter 1 (bf16 x 64) did not begin within 5m");
}

TEST_CASE("asked to stop, a rank does not wait for those that stopped before it") {
  Running r;
  r.seen.stop = true;
  CHECK(r.look(20s) == Action::kNothing);
  CHECK(r.look(22s) == Action::kNothing);
  CHECK(r.look(22s + 1ns) == Action::kPublish);
  CHECK(r.core.end() == RankEnd{81,
                                "asked to stop, but no other rank came to all-reduce 3 (f32 x "
                                "4096)",
                                true, -1});
}

TEST_CASE("an asynchronous error names what was under way") {
  Running r;
  r.seen.result = kNcclRemoteError;
  r.seen.words = "remote process exited: Connection closed by 10.0.0.2";
  CHECK(r.look(11s) == Action::kPublish);
  CHECK(r.core.end().message ==
        "NCCL: remote process exited: Connection closed by 10.0.0.2, at all-reduce 3 (f32 x 4096)");
  CHECK(r.core.end().secondary);
}

TEST_CASE("a failure is published, then aborted, then ends the process, each with a deadline") {
  const bool store_answers = GENERATE(true, false);
  const bool abort_returns = GENERATE(true, false);
  Running r;
  REQUIRE(r.look(400s) == Action::kPublish);
  CHECK(r.core.state() == State::kFailed);
  CHECK(r.look(403s) == Action::kNothing);
  if (store_answers) r.core.published({});
  CHECK(r.look(store_answers ? 403s : 403s + 1ns) == Action::kAbort);
  CHECK(r.core.state() == State::kAborting);
  CHECK(r.look(408s) == Action::kNothing);
  if (abort_returns) r.core.aborted();
  CHECK(r.look(abort_returns ? 408s : 409s) == Action::kExit);
  CHECK(r.core.state() == State::kGone);
  CHECK(r.core.end().exit_code == 83);
  CHECK((r.core.end().message.find("abort did not return within 5s") != std::string::npos) ==
        !abort_returns);
  CHECK(r.look(900s) == Action::kNothing);
}

TEST_CASE("a peer's failure that stands in the store makes this rank a victim") {
  Running r;
  r.seen.first = cause_of(3, 83);
  CHECK(r.look(11s) == Action::kAbort);  // nothing to publish
  CHECK(r.core.end() == RankEnd{81, "rank 3 failed first: why", true, 3});
  r.core.aborted();
  CHECK(r.look(11s) == Action::kExit);

  CommunicatorCore early(0, kLimits, 4);
  early.begin(at(0s));
  Sight seen = sight(1s, kNcclInProgress);
  seen.first = cause_of(2, 85);
  CHECK(early.look(seen) == Action::kAbort);
  CHECK(early.end().peer == 2);
}

TEST_CASE("a victim lets the rank that failed first end first") {
  const bool abort_returns = GENERATE(true, false);
  CommunicatorLimits limits = kLimits;
  limits.yield = 700ms;
  CommunicatorCore core(0, limits, 4);
  core.begin(at(0s));
  Sight seen = sight(1s, kNcclInProgress);
  seen.first = cause_of(2, 83);
  REQUIRE(core.look(seen) == Action::kAbort);
  if (abort_returns) core.aborted();
  const Duration wait = abort_returns ? 700ms - 1ns : 5700ms;
  seen.now = at(1s + wait);
  CHECK(core.look(seen) == Action::kNothing);
  seen.now = at(1s + wait + 1ns);
  CHECK(core.look(seen) == Action::kExit);
  // Who failed first lets nobody go before it.
  Running r;
  REQUIRE(r.look(400s) == Action::kPublish);
  r.core.published({});
  REQUIRE(r.look(400s) == Action::kAbort);
  r.core.aborted();
  CHECK(r.look(400s) == Action::kExit);
}

TEST_CASE("one's own note in the store is nobody else's failure") {
  Running r;
  r.seen.first = cause_of(1, 83);
  CHECK(r.look(11s) == Action::kNothing);
}

TEST_CASE("who was first is settled while publishing; a victim is not blamed") {
  struct Case {
    NcclResult result;
    FirstCause first;
    RankEnd want;
  };
  const std::vector<Case> cases{
      {kNcclRemoteError, cause_of(0, 83), {81, "rank 0 failed first: why", true, 0}},
      {kNcclInvalidUsage, cause_of(0, 82), {81, "rank 0 failed first: why", true, 0}},
      {kNcclRemoteError, cause_of(0, 81, true, 2), {81, "rank 0 failed first: why", true, 2}},
      {kNcclRemoteError, cause_of(0, 81, true, -1), {81, "rank 0 failed first: why", true, -1}},
      // What broke here stays this rank's own.
      {kNcclCudaError, cause_of(0, 83), {85, "NCCL: , at all-reduce 3 (f32 x 4096)", false, -1}},
      {kNcclRemoteError,
       cause_of(1, 81, true),
       {81, "NCCL: , at all-reduce 3 (f32 x 4096)", true, -1}}};
  for (const Case& c : cases) {
    for (const bool by_listener : {false, true}) {
      if (by_listener && c.first.rank == 1) continue;
      Running r;
      r.seen.result = c.result;
      REQUIRE(r.look(11s) == Action::kPublish);
      if (by_listener) {
        r.seen.first = c.first;
      } else {
        r.core.published(c.first);
      }
      CHECK(r.look(11s) == Action::kAbort);
      CHECK(r.core.end() == c.want);
    }
  }
}

TEST_CASE("where the others are explains a deadline or a lost connection, and nothing else") {
  struct Case {
    NcclResult result;
    Findings findings;
    RankEnd want;
  };
  const std::string late = "all-reduce 3 (f32 x 4096) did not end within 5m";
  const std::string lost = "NCCL: , at all-reduce 3 (f32 x 4096)";
  const std::vector<Case> cases{
      {kNcclSuccess,
       {"rank 0 has not come to it", false, -1},
       {83, late + "; rank 0 has not come to it", false, -1}},
      {kNcclSuccess,
       {"rank 0 came otherwise", true, -1},
       {82, late + "; rank 0 came otherwise", false, -1}},
      {kNcclSuccess, {}, {83, late, false, -1}},
      {kNcclRemoteError,
       {"rank 2 does not answer", false, 2},
       {81, lost + "; rank 2 does not answer", true, 2}},
      {kNcclCudaError, {"rank 2 does not answer", false, 2}, {85, lost, false, -1}}};
  for (const Case& c : cases) {
    Running r;
    r.seen.result = c.result;
    REQUIRE(r.look(400s) == Action::kPublish);
    r.core.published({}, c.findings);
    CHECK(r.look(400s) == Action::kAbort);
    CHECK(r.core.end() == c.want);
  }
}

TEST_CASE("the note about the first failure reads back, whatever its words") {
  const FirstCause cause{7, 12345, {83, "all-reduce 5 (f32 x 3) did not: 1 2 3", true, -1}};
  const auto read = read_cause_line(cause_line(cause));
  REQUIRE(read.ok());
  CHECK(read->rank == 7);
  CHECK(read->sequence == 12345);
  CHECK(read->end == cause.end);
  for (const char* bad : {"", "1", "1 2 3 4 5", "a 2 3 0 5 x", "1 2 3 0", "1  2 3 0 5 x"})
    CHECK_FALSE(read_cause_line(bad).ok());
}

TEST_CASE("as many collectives are outstanding as there are places") {
  CommunicatorCore core(0, kLimits, 3);
  core.begin(at(0s));
  REQUIRE(core.look(sight(0s)) == Action::kReady);
  Sight seen = sight(1s);
  for (std::uint64_t s = 1; s <= 100; ++s) {
    CHECK_FALSE(core.full());
    CHECK(core.enqueue(NcclOperation::kAllGather, kNcclF32, s, at(1s)) == s);
    core.launched(s, at(1s));
    CHECK(core.record(s).count == s);
    if (!core.full()) continue;
    seen.started = seen.finished = s;
    CHECK(core.look(seen) == Action::kNothing);
    CHECK(core.finished() == s);
  }
}

TEST_CASE("ranks that did the same have the same fingerprint, and no others") {
  struct One {
    NcclOperation operation;
    int type;
    std::uint64_t count;
  };
  const auto of = [](const std::vector<One>& all) {
    CommunicatorCore core(0, kLimits, 8);
    core.begin(at(0s));
    REQUIRE(core.look(sight(0s)) == Action::kReady);
    for (const One& one : all)
      core.enqueue(one.operation, one.type, one.count, at(1s));
    return core.fingerprint();
  };
  const One a{NcclOperation::kAllReduce, kNcclF32, 64};
  const One b{NcclOperation::kAllReduce, kNcclF32, 65};
  const One c{NcclOperation::kAllReduce, kNcclBf16, 64};
  const One d{NcclOperation::kAllGather, kNcclF32, 64};
  CHECK(of({a, b}) == of({a, b}));
  const std::vector<std::uint64_t> others{of({}),  of({a}),    of({b}),    of({c}),
                                          of({d}), of({a, b}), of({b, a}), of({a, a})};
  for (std::size_t i = 0; i < others.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      CHECK(others[i] != others[j]);
}

// Whatever happens in whatever order: ready at most once and first; one failure, published at most
// once, aborted at most once, ended exactly once; never later than the deadlines allow; and never a
// failure without a reason for one.
TEST_CASE("random lives of a communicator keep to the order and the deadlines") {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    Rng rng(seed);
    CommunicatorCore core(1, kLimits, 4);
    Sight seen = sight(0s, kNcclInProgress);
    core.begin(seen.now);
    std::vector<Action> actions;
    bool troubled = false;
    Instant outstanding_since = seen.now;
    Instant failed_at;
    Instant abort_at;
    bool stop = false;
    const bool quiet = rng.below(3) == 0;  // nothing ever goes wrong
    for (int step = 0; step < 300 && core.state() != State::kGone; ++step) {
      seen.now = seen.now + Duration(rng.below(3'000'000'000));
      const bool ready = core.state() == State::kReady;
      switch (rng.below(quiet ? 5 : 12)) {
        case 0: seen.result = seen.result == kNcclInProgress ? kNcclSuccess : seen.result; break;
        case 1:
          if (ready && !core.full()) {
            if (core.enqueued() == core.finished()) outstanding_since = seen.now;
            core.launched(core.enqueue(NcclOperation::kAllReduce, kNcclF32, 1, seen.now), seen.now);
          }
          break;
        case 2:
        case 3:
          if (ready && seen.finished < core.enqueued()) {
            if (seen.started == seen.finished) {
              ++seen.started;
            } else {
              ++seen.finished;
            }
            outstanding_since = seen.now;
          }
          break;
        case 4: break;
        case 5: seen.now = seen.now + 100s; break;
        case 6:
          seen.result = static_cast<NcclResult>(1 + rng.below(6));
          troubled = true;
          break;
        case 7:
          seen.first = cause_of(static_cast<int>(rng.below(3)), 83);
          troubled = true;
          break;
        case 8: stop = seen.stop = true; break;
        case 9: core.published({}); break;
        case 10:
          if (core.state() == State::kAborting) core.aborted();
          break;
        default: break;
      }
      for (;;) {
        const State before = core.state();
        const Action action = core.look(seen);
        if (action == Action::kNothing) break;
        actions.push_back(action);
        if (before == State::kInitialising || before == State::kReady) failed_at = seen.now;
        if (action == Action::kAbort) abort_at = seen.now;
      }
      if (core.state() == State::kFailed) CHECK(seen.now - failed_at <= kLimits.publish);
      if (core.state() == State::kAborting) CHECK(seen.now - abort_at <= kLimits.abort);
      if (core.state() == State::kReady && core.enqueued() > core.finished()) {
        CHECK(seen.now - outstanding_since <= kLimits.collective);
      }
    }
    const auto count = [&](Action one) { return std::count(actions.begin(), actions.end(), one); };
    CHECK(count(Action::kReady) <= 1);
    CHECK(count(Action::kPublish) <= 1);
    CHECK(count(Action::kAbort) <= 1);
    CHECK(count(Action::kExit) <= count(Action::kAbort));
    CHECK(std::is_sorted(actions.begin(), actions.end()));
    if (count(Action::kAbort) == 1) {
      const int code = core.end().exit_code;
      CHECK((code == 70 || (code >= 81 && code <= 83) || code == 85));
      CHECK(core.end().secondary == (code == 81));
      CHECK_FALSE(core.end().message.empty());
      const bool late = code == 83 || code == 85;
      CHECK((troubled || stop || late));
    }
  }
}

}  // namespace muster::runtime::cuda
