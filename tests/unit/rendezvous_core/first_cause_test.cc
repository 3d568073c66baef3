// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/first_cause.h"

#include <algorithm>

#include <catch2/catch.hpp>

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

Cause cause(const NodeName& node, std::uint32_t rank, FailureKind kind, int value, Duration when,
            std::uint64_t order = 0) {
  Cause made;
  made.failure.node = node;
  made.failure.rank = rank;
  made.failure.kind = kind;
  if (kind == FailureKind::kExit) made.failure.exit_code = value;
  if (kind == FailureKind::kSignal) made.failure.signal = value;
  made.happened = {when};
  made.reported = {when};
  made.order = order;
  return made;
}

Cause loss(const NodeName& node, Duration when) {
  Cause made = cause(node, 0, FailureKind::kNodeLost, 0, when);
  made.failure.rank.reset();
  return made;
}

Cause secondary(Cause made) {
  made.failure.secondary = true;
  return made;
}

Failure first(std::vector<Cause> causes) {
  const auto verdict = settle_first_cause(causes, 64);
  REQUIRE(verdict.has_value());
  CHECK(verdict->victims.size() == causes.size() - 1);
  // The order in which reports came in decides nothing but the order of victims.
  std::reverse(causes.begin(), causes.end());
  CHECK(settle_first_cause(causes, 64)->first.failure == verdict->first.failure);
  return verdict->first.failure;
}

}  // namespace

TEST_CASE("no failure, no cause") {
  CHECK_FALSE(settle_first_cause({}, 64).has_value());
}

TEST_CASE("of ranks that hang together a stopped one is to blame, else who came least far") {
  const auto hung = [](const NodeName& node, Duration when, Hang hang) {
    Cause made = cause(node, 1, FailureKind::kHang, 0, when);
    made.hang = hang;
    return made;
  };
  CHECK(first({hung("a", 0ms, {false, false, 5}), hung("b", 900ms, {false, true, 5})}).node == "b");
  CHECK(first({hung("a", 0ms, {false, false, 5}), hung("b", 900ms, {false, false, 4})}).node ==
        "b");
  CHECK(first({hung("a", 0ms, {false, false, 5}), hung("b", 9ms, {true, false, {}})}).ambiguous);
  const Failure equal =
      first({hung("a", 9ms, {false, false, 5}), hung("b", 0ms, {false, false, 5})});
  CHECK(equal.node == "b");
  CHECK(equal.ambiguous);
  // What failed by itself long before is the cause.
  const Failure own =
      first({cause("a", 0, FailureKind::kExit, 3, 0ms), hung("b", 900ms, {false, true, 5})});
  CHECK(own.node == "a");
}

TEST_CASE("on one node the wait set's order decides, whatever the clock said") {
  const Failure found = first({cause("a", 1, FailureKind::kExit, 1, 10ms, 8),
                               cause("a", 0, FailureKind::kExit, 1, 20ms, 7)});
  CHECK(found.rank == 0U);
  CHECK_FALSE(found.ambiguous);
}

TEST_CASE("between nodes time decides where it can") {
  const Failure found = first({cause("a", 0, FailureKind::kSignal, 11, 200ms),
                               cause("b", 1, FailureKind::kExit, 1, 100ms)});
  CHECK(found.rank == 1U);
  CHECK_FALSE(found.ambiguous);
}

TEST_CASE("within 50 ms evidence decides, and says that it was close") {
  const Cause abort = cause("a", 0, FailureKind::kSignal, 6, 0ms);
  const Cause exit = cause("b", 1, FailureKind::kExit, 1, 20ms);
  const Cause segv = cause("c", 2, FailureKind::kSignal, 11, 49ms);
  Failure found = first({abort, exit, segv});
  CHECK(found.rank == 2U);
  CHECK(found.ambiguous);
  found = first({abort, exit});
  CHECK(found.rank == 1U);
  Cause late = segv;
  late.happened = {50ms};  // no longer in doubt
  CHECK(first({abort, late}).rank == 0U);
  CHECK_FALSE(first({abort, late}).ambiguous);
}

TEST_CASE("within 50 ms who says that it lost a peer is asked last") {
  Cause exit = cause("a", 0, FailureKind::kExit, 1, 0ms);
  exit.failure.stderr_tail = "ConnectionResetError: [Errno 104] Connection reset by peer";
  CHECK(first({exit, cause("b", 1, FailureKind::kSignal, 6, 20ms)}).rank == 1U);
  CHECK(first({exit, cause("b", 1, FailureKind::kExit, 1, 49ms)}).rank == 1U);
  CHECK(first({exit, cause("b", 1, FailureKind::kExit, 1, 50ms)}).rank == 0U);
}

TEST_CASE("within 50 ms equals are ordered by their last words, where all had some") {
  Cause abort = cause("a", 0, FailureKind::kSignal, 6, 10ms);
  Cause later = cause("b", 1, FailureKind::kSignal, 6, 20ms);
  abort.spoke = Instant{9ms};
  later.spoke = Instant{8ms};
  CHECK(first({abort, later}).rank == 1U);
  CHECK(first({abort, later}).ambiguous);
  // Worse evidence does not count, and a silent equal has no words to compare.
  Cause exit = cause("c", 2, FailureKind::kExit, 1, 30ms);
  exit.spoke = Instant{29ms};
  CHECK(first({abort, later, exit}).rank == 2U);
  CHECK(first({abort, later, cause("d", 3, FailureKind::kSignal, 6, 15ms)}).rank == 0U);
}

TEST_CASE("a victim by its own word is never first while there is a primary") {
  CHECK(first({secondary(cause("a", 0, FailureKind::kExit, 1, 0ms)),
               cause("b", 1, FailureKind::kExit, 3, 190ms)})
            .rank == 1U);
  CHECK(first({secondary(cause("a", 0, FailureKind::kExit, 1, 0ms, 1)),
               cause("a", 1, FailureKind::kExit, 3, 0ms, 2)})
            .rank == 1U);
  CHECK(first({secondary(cause("a", 0, FailureKind::kExit, 1, 0ms)),
               secondary(cause("b", 1, FailureKind::kExit, 1, 100ms))})
            .rank == 0U);
}

TEST_CASE("a lost node outranks exits elsewhere") {
  Failure found = first({cause("a", 0, FailureKind::kSignal, 6, 0ms), loss("b", 900ms)});
  CHECK(found.kind == FailureKind::kNodeLost);
  CHECK(found.node == "b");
  // What its own worker did before stands: that is what began it.
  found = first({cause("b", 1, FailureKind::kSignal, 11, 0ms), loss("b", 900ms)});
  CHECK(found.rank == 1U);
  // But a stop signal there belongs to the node's going down.
  found = first({cause("b", 1, FailureKind::kSignal, 15, 0ms), loss("b", 900ms)});
  CHECK(found.kind == FailureKind::kNodeLost);
  found = first({secondary(cause("b", 1, FailureKind::kExit, 1, 0ms)), loss("b", 900ms)});
  CHECK(found.kind == FailureKind::kNodeLost);
}

TEST_CASE("a node that was lost and came back: what ended on it since then followed") {
  Cause gone = loss("b", 1s);
  gone.reported = {3s};
  CHECK(first({gone, cause("b", 2, FailureKind::kExit, 1, 3500ms)}).kind == FailureKind::kNodeLost);
  CHECK(first({gone, cause("b", 2, FailureKind::kExit, 1, 2s)}).rank == 2U);
  // Of several the wait set's first is looked at, whatever the ages say of the others.
  CHECK(first({gone, cause("b", 3, FailureKind::kExit, 1, 2s, 8),
               cause("b", 2, FailureKind::kExit, 1, 4s, 7)})
            .kind == FailureKind::kNodeLost);
  Cause again = loss("b", 4s);
  again.reported = {5s};
  CHECK(first({again, gone}).kind == FailureKind::kNodeLost);
}

TEST_CASE("victims are bounded") {
  std::vector<Cause> causes;
  for (std::uint32_t rank = 0; rank < 100; ++rank) {
    causes.push_back(cause("a", rank, FailureKind::kExit, 1, 0ms, rank));
  }
  const auto verdict = settle_first_cause(causes, 5);
  CHECK(verdict->first.failure.rank == 0U);
  CHECK(verdict->victims.size() == 5);
}

TEST_CASE("exit codes of a run") {
  Failure failure;
  failure.exit_code = 3;
  CHECK(exit_code_of(failure) == 3);
  failure.kind = FailureKind::kSignal;
  failure.signal = 11;
  CHECK(exit_code_of(failure) == 139);
  failure.kind = FailureKind::kOom;
  CHECK(exit_code_of(failure) == 137);
  failure.kind = FailureKind::kHang;
  CHECK(exit_code_of(failure) == 124);
  failure.kind = FailureKind::kNodeLost;
  CHECK(exit_code_of(failure) == 1);
}

TEST_CASE("what counts as a stop signal") {
  const auto stops = [](FailureKind kind, int value) {
    return is_stop_signal(cause("a", 0, kind, value, 0ms));
  };
  CHECK(stops(FailureKind::kSignal, 15));
  CHECK(stops(FailureKind::kExit, 143));
  CHECK_FALSE(stops(FailureKind::kSignal, 10));
  CHECK_FALSE(stops(FailureKind::kExit, 1));
  Cause handled = cause("a", 0, FailureKind::kSignal, 10, 0ms);
  handled.stops_agent = true;  // --signals-to-handle USR1
  CHECK(is_stop_signal(handled));
}

TEST_CASE("a failure in words") {
  WorkerExited exited;
  exited.status = {ExitStatus::Kind::kSignaled, 11, true, ""};
  CHECK(describe(to_failure(exited, "a")) ==
        "rank 0 on node a was killed by SIGSEGV (core dumped)");
}
