// SPDX-License-Identifier: Apache-2.0
//
// Processes that SIGKILL does not end: told once, by pid and state, and waited for once.
#include <fstream>
#include <memory>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/guardian.h"
#include "tests/unit/agent_shell_process/freezer.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

// Waiting for one of these would be noticed by everybody.
constexpr Duration kForEver = std::chrono::hours(1);

struct Fixture {
  Fixture() {
    starting_state();
    supervisor = std::make_unique<Supervisor>(loop.context());
    supervisor->set_kill_limit(kForEver);
  }

  bool ready() const {
    if (!freezer.ready()) WARN("no freezer (root and cgroup version 1 are needed): not tested");
    return freezer.ready();
  }
  bool until(const std::function<bool()>& holds) { return run_until(loop, holds); }

  IoLoop loop;
  TempFolder folder;
  std::unique_ptr<Supervisor> supervisor;
  Freezer freezer;
};

// What the kernel itself says of the first thread.
char raw_state(pid_t pid) {
  const std::string text = read_text("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos ? '?' : text.at(name_end + 2);
}

TEST_CASE_METHOD(Fixture, "a worker that cannot be killed is told, then nobody waits for it") {
  if (!ready()) return;
  Observed seen;
  auto worker = supervisor->start(probe_request({"pause"}), seen.callbacks());
  const pid_t pid = worker->pid();
  REQUIRE(until([&] { return seen.spawned == 1; }));
  freezer.freeze(pid);
  REQUIRE(read_process(pid)->state == 'D');
  worker->signal(SIGKILL, SignalScope::kGroup, 100ms);
  worker->signal(SIGKILL, SignalScope::kDescendants, 100ms);
  REQUIRE(until([&] { return seen.unkillable == 1; }));
  CHECK(seen.stuck_pid == pid);
  CHECK(seen.stuck_state == "D");
  CHECK(seen.ended == 0);
  SECTION("the end of the supervisor does not") {
    supervisor.reset();
    CHECK(read_process(pid)->state == 'D');
  }
  SECTION("nor does the end of the worker before it") {
    worker.reset();
    supervisor.reset();
    CHECK(read_process(pid)->state == 'D');
  }
  SECTION("and if it ends after all, that is told as ever") {
    freezer.thaw();
    REQUIRE(until([&] { return seen.gone == 1; }));
    CHECK(seen.log == std::vector<std::string>{"spawned", "unkillable", "ended", "gone"});
    return;
  }
  freezer.thaw();
  CHECK(::waitpid(pid, nullptr, 0) == pid);
}

TEST_CASE_METHOD(Fixture, "what a worker started and cannot be killed is told by its own pid") {
  if (!ready()) return;
  Observed seen;
  const auto worker =
      supervisor->start(probe_request({"daemon", folder.path("pid")}), seen.callbacks());
  REQUIRE(until([&] { return seen.ended == 1; }));
  const pid_t daemon = read_pid(folder.path("pid"));
  freezer.freeze(daemon);
  worker->signal(SIGKILL, SignalScope::kDescendants, 100ms);
  REQUIRE(until([&] { return seen.unkillable == 1; }));
  CHECK(seen.stuck_pid == daemon);
  freezer.thaw();
  REQUIRE(until([&] { return seen.gone == 1; }));
}

TEST_CASE_METHOD(Fixture, "a process whose first thread is dead and whose second hangs, lives") {
  if (!ready()) return;
  Observed seen;
  const auto worker =
      supervisor->start(probe_request({"thread", folder.path("thread")}), seen.callbacks());
  REQUIRE(until([&] { return read_pid(folder.path("thread")) != 0; }));
  freezer.freeze_thread(read_pid(folder.path("thread")));
  worker->signal(SIGKILL, SignalScope::kDescendants, 100ms);
  REQUIRE(until([&] { return seen.unkillable == 1; }));
  CHECK(raw_state(worker->pid()) == 'Z');
  CHECK(read_process(worker->pid())->state == 'D');
  CHECK(seen.stuck_pid == worker->pid());
  CHECK(seen.stuck_state == "D");
  CHECK(seen.ended == 0);
  CHECK(worker->alive());
  freezer.thaw();
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.exit.status.value == SIGKILL);
}

TEST_CASE("a guardian does not wait for what its agent has given up on") {
  Freezer freezer;
  if (!freezer.ready()) {
    WARN("no freezer (root and cgroup version 1 are needed): not tested");
    return;
  }
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  const TempFolder folder;
  const pid_t guardian = ::fork();
  if (guardian == 0) {
    ::setsid();
    if (::freopen(folder.path("err").c_str(), "w", stderr) == nullptr) ::_exit(98);
    ::_exit(run_guarded([&](const Guarded&) {
      const pid_t left = ::fork();
      if (left == 0) {
        for (;;)
          ::pause();
      }
      freezer.freeze(left);
      std::ofstream(folder.path("left")) << left;
      return 77;
    }));
  }
  const Instant begin = IoLoop::now();
  int status = 0;
  REQUIRE(::waitpid(guardian, &status, 0) == guardian);
  const Duration took = IoLoop::now() - begin;
  CHECK(WEXITSTATUS(status) == 77);
  const pid_t left = read_pid(folder.path("left"));
  REQUIRE(left != 0);
  CHECK(read_text(folder.path("err")) ==
        "muster: process " + std::to_string(left) + " (state D) cannot be killed\n");
  CHECK(took < 4s);  // five is what it gives to those that nobody has waited for
  freezer.thaw();
  CHECK(::waitpid(left, nullptr, 0) == left);
}

}  // namespace
}  // namespace muster::agent
