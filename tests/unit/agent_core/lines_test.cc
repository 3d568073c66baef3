// SPDX-License-Identifier: Apache-2.0
#include "agent/core/lines.h"

#include "tests/unit/agent_core/rig.h"

namespace muster::agent {

TEST_CASE("the recovery line is the contract's") {
  JobEvent event;
  event.generation = 1;
  event.body = event::Recovered{0s, 20ms, 10ms, 180ms, 210ms, std::nullopt};
  CHECK(console_line(event) == "recovered in 0.21 s: detect 0.00 stop 0.02 form 0.01 spawn 0.18");
}

TEST_CASE("a failed generation and what follows, in words") {
  JobEvent event;
  event.generation = 0;
  Failure failure;
  failure.kind = FailureKind::kSignal;
  failure.node = "b";
  failure.rank = 1;
  failure.pid = 42;
  failure.signal = 9;
  event.body = event::GenerationFailed{failure, {}};
  CHECK(console_line(event) ==
        "generation 0 failed: rank 1 (node b, pid 42) was killed by SIGKILL");
  failure.signal = 11;
  failure.core_dumped = true;
  CHECK(describe(failure) == "rank 1 (node b, pid 42) was killed by SIGSEGV (core dumped)");
  event.body = event::RestartScheduled{1, 3, true, 1200ms};
  CHECK(console_line(event) == "restart 1 of 3 in 1.20 s");
  event.body = event::RestartScheduled{1, 3, false, 0s};
  CHECK(console_line(event) == "re-forming, not charged");
  event.body = event::GenerationRunning{};
  CHECK_FALSE(console_line(event).has_value());
}

TEST_CASE("every kind of failure reads as a sentence") {
  Failure failure;
  failure.node = "b";
  failure.rank = 3;
  failure.kind = FailureKind::kExit;
  failure.exit_code = 7;
  CHECK(describe(failure) == "rank 3 (node b) exited with code 7");
  failure.kind = FailureKind::kOom;
  CHECK(describe(failure) == "rank 3 (node b) was killed for memory (OOM)");
  failure.kind = FailureKind::kSpawn;
  failure.detail = "./t: Permission denied";
  CHECK(describe(failure) == "rank 3 (node b) could not be started: ./t: Permission denied");
  failure = Failure{};
  failure.kind = FailureKind::kNodeLost;
  failure.node = "b";
  failure.detail = "silent for 10s";
  CHECK(describe(failure) == "node b is lost: silent for 10s");
}

TEST_CASE("a waiting line says who joined and how many are missing") {
  Waiting waiting;
  waiting.why = Waiting::Why::kBelowMin;
  waiting.min_nodes = 2;
  waiting.max_nodes = 4;
  waiting.joined = {"a"};
  waiting.missing = 1;
  waiting.remaining = 590s;
  CHECK(describe(waiting) == "waiting for nodes: 1 of 2:4 nodes joined (a), 1 missing; 590s left");
  waiting.joined.assign(20, "n");
  CHECK(describe(waiting).find("4 more") != std::string::npos);
}

TEST_CASE("what was tried tells silence from strangers") {
  LinkHistory history{"h:29400", 12, false, true, "connection refused"};
  CHECK(describe(history) ==
        "no Muster server answers at h:29400 (12 tries, last: connection refused)");
  history.speaks_muster = false;
  history.reason = "HTTP/1.1 400";
  CHECK(describe(history) ==
        "what answers at h:29400 does not speak Muster's protocol (12 tries, "
        "last: HTTP/1.1 400)");
  history = LinkHistory{"", 1, true, true, ""};
  CHECK(describe(history) == "the server is connected but does not answer");
}

TEST_CASE("processes that outlive their worker are named, some of them") {
  CHECK(lingering_line(3, {}, 30s) ==
        "rank 3 ended, processes that it started run on; they have 30s (--exit-grace)");
  CHECK(lingering_line(0, {{41, "sleep 600"}, {42, ""}}, 500ms) ==
        "rank 0 ended, processes that it started run on: 41 (sleep 600), 42; they have 500ms "
        "(--exit-grace)");
  const std::vector<Lingering> many(7, {9, std::string(70, 'x')});
  const std::string line = lingering_line(0, many, 1s);
  CHECK(line.find("9 (" + std::string(60, 'x') + "...)") != std::string::npos);
  CHECK(line.find(", 2 more; they have 1s") != std::string::npos);
}

}  // namespace muster::agent
