// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/end_batch.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

ExitStatus by(int signal) {
  return {ExitStatus::Kind::kSignaled, signal, false, ""};
}
ExitStatus code(int value) {
  return {ExitStatus::Kind::kExited, value, false, ""};
}

struct Fixture {
  void add(pid_t pid, const ExitStatus& status, Duration failing = 0s) {
    batch.add(pid, status, IoLoop::now() - failing, std::nullopt,
              [this, pid] { told.push_back(pid); });
  }
  void add_spoken(pid_t pid, const ExitStatus& status, Duration ago) {
    const Instant now = IoLoop::now();
    batch.add(pid, status, now, now - ago, [this, pid] { told.push_back(pid); });
  }
  IoLoop loop;
  EndBatch batch{loop.context()};
  std::vector<pid_t> told;
};
using Pids = std::vector<pid_t>;

}  // namespace

TEST_CASE_METHOD(Fixture, "an end that nobody waits with is told at once") {
  add(1, by(6));
  CHECK(told == Pids{1});
}

TEST_CASE_METHOD(Fixture, "ends wait for those on the way out, then the best evidence is first") {
  batch.begin({4, 5});
  add(2, by(6));
  add(3, by(6));  // joins them, though nobody waited for it
  add(4, code(7));
  CHECK(told.empty());
  add(5, by(11));
  CHECK(told == Pids{5, 4, 2, 3});
  CHECK_FALSE(batch.open());
  add(6, code(0));
  CHECK(told.back() == 6);
}

TEST_CASE_METHOD(Fixture, "among equals the one is first whose failure began first") {
  batch.begin({3, 4});
  add(2, code(1));
  add(3, code(1), 30ms);
  add(4, code(1), 10ms);
  CHECK(told == Pids{3, 4, 2});
}

TEST_CASE_METHOD(Fixture, "reactions wait for everybody until an end comes that is none") {
  batch.begin({2, 3, 4});
  add(2, by(6));
  CHECK(batch.all_reactions());
  add(3, code(1));
  CHECK_FALSE(batch.all_reactions());
  batch.narrow({4});
  CHECK(told.empty());
  add(4, by(6));
  CHECK(told == Pids{3, 2, 4});
  CHECK(batch.all_reactions());  // of the next one
}

TEST_CASE_METHOD(Fixture, "last words decide where all had some, and never against silent ones") {
  batch.begin({2, 3});
  add_spoken(2, by(6), 10ms);
  add_spoken(3, by(6), 40ms);
  CHECK(told == Pids{3, 2});
  told.clear();
  batch.begin({2, 3, 4});
  add(2, by(6));
  add_spoken(3, by(6), 40ms);
  add_spoken(4, code(1), 5ms);
  CHECK(told == Pids{4, 2, 3});
}

TEST_CASE_METHOD(Fixture, "one that does not come holds the others up for a moment only") {
  batch.begin({4});
  add(2, by(6));
  add(3, code(1));
  CHECK(told.empty());
  REQUIRE(run_until(loop, [this] { return !told.empty(); }));
  CHECK(told == Pids{3, 2});
}

}  // namespace muster::agent
