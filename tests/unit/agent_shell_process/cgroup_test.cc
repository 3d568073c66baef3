// SPDX-License-Identifier: Apache-2.0
//
// Which group is taken for ours, with files; and, where this user may make control groups of
// version 2, that a group holds and kills all that a worker starts.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/worker_cgroup.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

// A machine's /proc and /sys/fs/cgroup as far as they are looked at.
struct Machine {
  TempFolder folder;
  std::string proc = folder.path("proc");
  std::string root = folder.path("cgroup");

  static void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  void own(const std::string& lines) const { put(proc + "/self/cgroup", lines); }
  std::string path() const { return job_cgroup_path("muster-x", proc, root); }
};

std::string self() {
  return std::to_string(::getpid()) + "\n";
}

TEST_CASE("the group of this process is found, and only if it says so itself") {
  const Machine machine;
  CHECK(machine.path().empty());
  machine.own("4:memory:/a\n0::/user.slice/job.scope\n");
  CHECK(machine.path().empty());
  const std::string group = machine.root + "/user.slice/job.scope";
  Machine::put(machine.root + "/cgroup.controllers", "cpu memory\n");
  Machine::put(group + "/cgroup.procs", "1\n" + self());
  CHECK(machine.path() == group + "/muster-x");
  Machine::put(group + "/cgroup.procs", "1\n2\n");  // the path of another machine's view
  CHECK(machine.path().empty());
}

TEST_CASE("version 2 beside version 1, the topmost group, and one outside of the mount") {
  const Machine machine;
  machine.own("4:memory:/a\n0::/\n");
  Machine::put(machine.root + "/unified/cgroup.controllers", "");
  Machine::put(machine.root + "/unified/cgroup.procs", self());
  CHECK(machine.path() == machine.root + "/unified/muster-x");
  Machine::put(machine.root + "/cgroup.procs", self());
  machine.own("0::/../unified\n");
  Machine::put(machine.root + "/cgroup.controllers", "");
  CHECK(machine.path().empty());
  machine.own("4:memory:/a\n");
  CHECK(machine.path().empty());
}

TEST_CASE("what is no control group is not used and not left") {
  const TempFolder folder;
  CHECK(WorkerCgroup::make("", "w") == nullptr);
  CHECK(WorkerCgroup::make(folder.path("none/job"), "w") == nullptr);
  const std::string job = folder.path("job");
  CHECK(WorkerCgroup::make(job, "w") == nullptr);
  CHECK_FALSE(fs::exists(job + "/w"));
  CHECK(remove_job_cgroup(job, 0ms));
  CHECK_FALSE(fs::exists(job));
  CHECK(remove_job_cgroup(job, 0ms));
  CHECK(remove_job_cgroup("", 0ms));
  // A threaded group says so, and takes no process.
  Machine::put(job + "/v/cgroup.type", "threaded\n");
  CHECK(WorkerCgroup::make(job, "v") == nullptr);  // and one that is there is not ours
  CHECK(fs::exists(job + "/v/cgroup.type"));
}

struct Fixture {
  Fixture() {
    starting_state();
    supervisor = std::make_unique<Supervisor>(loop.context());
    job = job_cgroup_path("muster-test-" + std::to_string(::getpid()));
  }
  ~Fixture() {
    supervisor.reset();
    CHECK(remove_job_cgroup(job, 10s));
  }

  bool ready() {
    auto probe = WorkerCgroup::make(job, "probe");
    if (!probe) WARN("no right to make control groups of version 2: not tested");
    return probe != nullptr;
  }
  std::unique_ptr<WorkerProcess> start(WorkerRequest request, Observed& observed) {
    request.cgroup = WorkerCgroup::make(job, "w" + std::to_string(++count));
    path = request.cgroup->path();
    return supervisor->start(request, observed.callbacks());
  }
  bool until(const std::function<bool()>& holds) { return run_until(loop, holds); }
  std::ptrdiff_t size() const {  // processes in it
    const std::string pids = read_text(path + "/cgroup.procs");
    return std::count(pids.begin(), pids.end(), '\n');
  }
  bool holds(pid_t pid) const {
    return read_text(path + "/cgroup.procs").find(std::to_string(pid) + "\n") != std::string::npos;
  }

  IoLoop loop;
  TempFolder folder;
  std::unique_ptr<Supervisor> supervisor;
  std::string job;
  std::string path;  // of the group made last
  int count = 0;
};

TEST_CASE_METHOD(Fixture, "a worker is born in its group, which goes with it") {
  if (!ready()) return;
  Observed seen;
  const auto worker = start(probe_request({"pause"}), seen);
  CHECK(holds(worker->pid()));
  CHECK_FALSE(holds(::getpid()));
  worker->signal(SIGTERM, SignalScope::kLeader);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE_METHOD(Fixture, "a program that cannot be executed leaves no group") {
  if (!ready()) return;
  Observed seen;
  WorkerRequest request = probe_request({});
  request.spawn.program = "/no/such/program";
  const auto worker = start(request, seen);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.exit.status.value == ENOENT);
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE_METHOD(Fixture, "a daemon without a mark is in the group, and goes with it alone") {
  if (!ready()) return;
  Observed seen;
  Observed other_seen;
  const auto other = start(probe_request({"pause"}), other_seen);
  const auto worker = start(probe_request({"bare-daemon", folder.path("pid")}), seen);
  REQUIRE(until([&] { return seen.ended == 1; }));
  const pid_t daemon = read_pid(folder.path("pid"));
  CHECK(holds(daemon));
  CHECK(until([&] { return worker->descendants() == std::vector<pid_t>{daemon}; }));
  CHECK(seen.gone == 0);
  CHECK(other_seen.gone == 0);
  other->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return other_seen.gone == 1; }));
  CHECK(is_running(daemon));
  REQUIRE(remove_job_cgroup(job, 10s));
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK_FALSE(is_running(daemon));
}

TEST_CASE_METHOD(Fixture, "one stroke kills a group that keeps breeding, and nobody else") {
  if (!ready()) return;
  Observed seen;
  Observed other_seen;
  const auto other = start(probe_request({"pause"}), other_seen);
  const auto worker = start(probe_request({"breed", "100000"}), seen);
  REQUIRE(until([&] { return size() > 30; }));
  std::ofstream(path + "/cgroup.kill") << "1" << std::flush;  // no sweep: the kernel alone
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.exit.status.value == SIGKILL);
  CHECK_FALSE(fs::exists(path));
  CHECK(other->alive());
  other->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return other_seen.gone == 1; }));
}

TEST_CASE_METHOD(Fixture, "SIGKILL to all of a worker goes through its group") {
  if (!ready()) return;
  // One that has left the tree: its parent is this process, which has it as a child from before.
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    ::execl(PROBE, "probe", "pause", nullptr);
    ::_exit(1);
  }
  supervisor.reset();
  supervisor = std::make_unique<Supervisor>(loop.context());
  Observed seen;
  const auto worker = start(probe_request({"pause"}), seen);
  std::ofstream(path + "/cgroup.procs") << stranger << std::flush;
  REQUIRE(holds(stranger));
  worker->signal(SIGKILL, SignalScope::kDescendants);
  int status = 0;
  CHECK(::waitpid(stranger, &status, 0) == stranger);
  CHECK(WTERMSIG(status) == SIGKILL);
  REQUIRE(until([&] { return seen.gone == 1; }));
}

TEST_CASE_METHOD(Fixture, "a group that is gone is no reason not to start") {
  if (!ready()) return;
  Observed seen;
  WorkerRequest request = probe_request({"exit", "3"});
  request.cgroup = WorkerCgroup::make(job, "gone");
  REQUIRE(::rmdir(request.cgroup->path().c_str()) == 0);
  const auto worker = supervisor->start(request, seen.callbacks());
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.exit.status.value == 3);

  const UniqueFd folder_that_is_none(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  SpawnRequest plain = probe_request({"exit", "4"}).spawn;
  plain.cgroup = folder_that_is_none.get();
  const SpawnResult result = spawn(plain);
  REQUIRE(result.ok());
  CHECK_FALSE(result.in_cgroup);
  int status = 0;
  ::waitpid(result.pid, &status, 0);
  CHECK(WEXITSTATUS(status) == 4);
}

TEST_CASE_METHOD(Fixture, "groups that a worker made in its own are removed with it") {
  if (!ready()) return;
  Observed seen;
  WorkerRequest request = shell_request("");
  request.cgroup = WorkerCgroup::make(job, "nested");
  path = request.cgroup->path();
  request.spawn.argv = {"sh", "-c", "mkdir -p " + path + "/a/b"};
  const auto worker = supervisor->start(request, seen.callbacks());
  request.cgroup.reset();
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK_FALSE(fs::exists(path));
}

// Opened while it lives and read when it does not, such a file fails in the middle.
TEST_CASE("the groups of a process that ends while they are read") {
  std::atomic<pid_t> newest{::getpid()};
  std::atomic<bool> over{false};
  std::thread others([&] {
    while (!over) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(0);
      newest = child;
      ::waitpid(child, nullptr, 0);
    }
  });
  const auto end = std::chrono::steady_clock::now() + 300ms;
  while (std::chrono::steady_clock::now() < end)
    CHECK_NOTHROW(control_groups_of(newest));
  over = true;
  others.join();
}

}  // namespace
}  // namespace muster::agent
