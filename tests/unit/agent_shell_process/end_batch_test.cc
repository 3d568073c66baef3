// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/end_batch.h"

#include <optional>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

using Pids = std::vector<std::int64_t>;

struct Fixture {
  void add(std::int64_t pid, Evidence evidence, bool gathers = false) {
    const Instant now = IoLoop::now();
    batch.add(
        {pid, evidence, now, now, std::nullopt}, gathers, [this] { return alive; },
        [this, pid] { told.push_back(pid); });
  }
  IoLoop loop;
  EndBatch batch{loop.context()};
  std::vector<StillAlive> alive;
  Pids told;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "an end that nobody waits with is told at once") {
  add(1, Evidence::kReaction);
  CHECK(told == Pids{1});
  add(2, Evidence::kCrash, true);
  CHECK(told == Pids{1, 2});
}

TEST_CASE_METHOD(Fixture, "ends are told in their order once all have come") {
  alive = {{2, true, std::nullopt, std::nullopt}, {3, false, std::nullopt, std::nullopt}};
  add(1, Evidence::kReaction, true);
  add(3, Evidence::kReaction);
  CHECK(told.empty());
  add(2, Evidence::kCrash, true);
  CHECK(told == Pids{2, 1, 3});
  add(4, Evidence::kReaction);
  CHECK(told.back() == 4);
}

TEST_CASE_METHOD(Fixture, "one that does not come holds the others up for a moment only") {
  alive = {{4, false, std::nullopt, std::nullopt}};
  add(2, Evidence::kReaction, true);
  CHECK(told.empty());
  REQUIRE(run_until(loop, [this] { return !told.empty(); }));
  CHECK(told == Pids{2});
}

}  // namespace muster::agent
