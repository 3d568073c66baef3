// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ctime>
#include <memory>
#include <set>
#include <signal.h>
#include <string>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/worker_process.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

using Log = std::vector<std::string>;

struct Fixture {
  Fixture() {
    starting_state();
    supervisor = std::make_unique<Supervisor>(loop.context());
  }

  std::unique_ptr<WorkerProcess> start(const WorkerRequest& request, Observed& observed) {
    return supervisor->start(request, observed.callbacks());
  }

  bool until(const std::function<bool()>& holds, Duration limit = 30s) {
    return run_until(loop, holds, limit);
  }

  // Nothing that this test started lives; what may still be a zombie is reaped by the loop.
  void check_nothing_left() {
    for (const ProcessInfo& process : descendants_of(::getpid())) {
      CHECK((process.state == 'Z' || process.state == 'X'));
    }
    CHECK(until([] {
      siginfo_t info{};
      return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == -1;
    }));
  }

  TempFolder folder;
  IoLoop loop;
  std::unique_ptr<Supervisor> supervisor;
};

TEST_CASE_METHOD(Fixture, "ends are in the order in which they happened, not of the starts") {
  constexpr std::size_t kWorkers = 6;
  std::array<Observed, kWorkers> seen;
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  const std::array<std::size_t, kWorkers> order{4, 1, 5, 0, 3, 2};
  // All of it within one handler, as they are started: the loop looks at descriptors before it
  // comes to what was posted meanwhile.
  boost::asio::post(loop.context(), [&] {
    for (Observed& one : seen)
      workers.push_back(start(shell_request("exec sleep 1000"), one));
    for (const std::size_t worker : order) {
      const pid_t pid = workers[worker]->pid();
      REQUIRE(::kill(pid, SIGKILL) == 0);
      REQUIRE(wait_until([pid] { return read_process(pid)->state == 'Z'; }));
    }
  });
  for (const Observed& one : seen)
    REQUIRE(until([&] { return one.gone == 1; }));
  for (std::size_t i = 1; i < kWorkers; ++i)
    CHECK(seen[order[i - 1]].exit.order < seen[order[i]].exit.order);
  for (const Observed& one : seen)
    CHECK(one.log == Log{"spawned", "ended", "gone"});
}

TEST_CASE_METHOD(Fixture, "without descriptors nothing is taken for gone that is not") {
  Observed seen;
  const std::string child = folder.path("child");
  const auto worker = start(shell_request("setsid sleep 1000 & echo $! > " + child + ".new; mv " +
                                          child + ".new " + child + "; exit 3"),
                            seen);
  REQUIRE(until([&] { return read_pid(child) != 0 && seen.ended == 1; }));
  CHECK(seen.gone == 0);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // Not even those that are kept back are of use below this.
  rlimit none = before;
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::uint64_t misses = missed_looks();
  worker->signal(SIGTERM, SignalScope::kDescendants);
  CHECK(missed_looks() > misses);
  const pid_t pid = read_pid(child);
  ::kill(pid, SIGCONT);  // it lives
  CHECK_FALSE(until([&] { return seen.gone == 1; }, 200ms));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  worker->signal(SIGKILL, SignalScope::kDescendants);
  CHECK(until([&] { return seen.gone == 1; }));
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "a worker starts, ends and is gone, in this order") {
  Observed seen;
  const auto worker = start(probe_request({"exit", "3"}), seen);
  CHECK(seen.log.empty());
  CHECK(worker->pid() > 0);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.log == Log{"spawned", "ended", "gone"});
  CHECK(seen.pid == worker->pid());
  CHECK(seen.exit.pid == seen.pid);
  CHECK(seen.exit.status.kind == ExitStatus::Kind::kExited);
  CHECK(seen.exit.status.value == 3);
  CHECK(seen.exit.max_rss_bytes > 0);
  CHECK(seen.exit.run > 0ns);
  CHECK(worker->gone());
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "a failed exec comes as an ending with its errno") {
  Observed seen;
  WorkerRequest request = probe_request({});
  request.spawn.program = "/no/such/program";
  const auto worker = start(request, seen);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.log == Log{"ended", "gone"});
  CHECK(seen.exit.pid == 0);
  CHECK(seen.exit.status.kind == ExitStatus::Kind::kExecFailed);
  CHECK(seen.exit.status.value == ENOENT);
  CHECK(seen.exit.status.detail == "/no/such/program: No such file or directory");
  CHECK_FALSE(worker->alive());
  worker->signal(SIGKILL, SignalScope::kDescendants);  // no effect, no harm
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "signals reach the leader or the group, as asked") {
  // The child says where a TERM went.
  const std::string script = "trap 'echo leader >>" + folder.path("log") + "; exit 5' TERM;" +
                             "sh -c 'trap \"echo member >>" + folder.path("log") +
                             "; exit\" TERM; echo >" + folder.path("ready") +
                             "; while :; do sleep 0.01; done' & wait; wait; wait";
  for (const auto scope : {SignalScope::kLeader, SignalScope::kGroup, SignalScope::kDescendants}) {
    ::unlink(folder.path("log").c_str());
    ::unlink(folder.path("ready").c_str());
    Observed seen;
    const auto worker = start(shell_request(script), seen);
    REQUIRE(until([&] { return ::access(folder.path("ready").c_str(), F_OK) == 0; }));
    worker->signal(SIGTERM, scope);
    REQUIRE(until([&] { return seen.ended == 1; }));
    CHECK(seen.exit.status.value == 5);
    if (scope == SignalScope::kLeader) {
      // Its group lives on, so it is not gone; then the group gets the signal.
      CHECK(seen.gone == 0);
      CHECK(worker->descendants().size() >= 1);
      CHECK(read_text(folder.path("log")) == "leader\n");
      worker->signal(SIGTERM, SignalScope::kGroup);
    }
    REQUIRE(until([&] { return seen.gone == 1; }));
    CHECK(read_text(folder.path("log")).find("member\n") != std::string::npos);
  }
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "a stopped worker is killed") {
  Observed seen;
  const auto worker = start(probe_request({"pause"}), seen);
  worker->signal(SIGSTOP, SignalScope::kLeader);
  REQUIRE(until([&] { return read_process(worker->pid())->state == 'T'; }));
  worker->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.exit.status.value == SIGKILL);
  CHECK(seen.unkillable == 0);
  check_nothing_left();
}

// Traces a process and never asks what becomes of it, as a debugger at its prompt.
class Tracer {
 public:
  Tracer() {
    REQUIRE(::pipe(order_.data()) == 0);
    REQUIRE(::pipe(answer_.data()) == 0);
    pid_ = ::fork();
    if (pid_ != 0) return;
    pid_t whom = 0;
    if (::read(order_[0], &whom, sizeof whom) != sizeof whom) ::_exit(1);
    const char done = ::ptrace(PTRACE_SEIZE, whom, nullptr, nullptr) == 0 ? 'y' : 'n';
    if (::write(answer_[1], &done, 1) != 1) ::_exit(1);
    for (;;)
      ::pause();
  }
  ~Tracer() {
    end();
    for (const int fd : {order_[0], order_[1], answer_[0], answer_[1]})
      ::close(fd);
  }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  pid_t pid() const { return pid_; }
  // False: this user may trace nobody.
  bool seize(pid_t whom) {
    char done = 'n';
    REQUIRE(::write(order_[1], &whom, sizeof whom) == sizeof whom);
    REQUIRE(::read(answer_[0], &done, 1) == 1);
    return done == 'y';
  }
  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  std::array<int, 2> order_{};
  std::array<int, 2> answer_{};
  pid_t pid_ = 0;
};

TEST_CASE("one that a debugger holds is given up with its name, and costs nothing meanwhile") {
  starting_state();
  Tracer tracer;  // a child from before: none of the supervisor's
  IoLoop loop;
  Supervisor supervisor(loop.context());
  supervisor.set_kill_limit(300ms);
  Observed seen;
  const auto worker = supervisor.start(probe_request({"pause"}), seen.callbacks());
  REQUIRE(run_until(loop, [&] { return seen.spawned == 1; }));
  if (!tracer.seize(worker->pid())) return;
  worker->signal(SIGKILL, SignalScope::kDescendants);
  const std::clock_t before = std::clock();
  REQUIRE(run_until(loop, [&] { return seen.unkillable == 1; }));
  CHECK(std::clock() - before < CLOCKS_PER_SEC / 10);
  CHECK(seen.stuck_state == "Z, traced by process " + std::to_string(tracer.pid()));
  CHECK(seen.gone == 0);
  tracer.end();
  REQUIRE(run_until(loop, [&] { return seen.gone == 1; }));
  CHECK(seen.exit.status.value == SIGKILL);
}

TEST_CASE_METHOD(Fixture, "one that is held up before it is the program holds up nobody else") {
  Observed held_seen;
  Observed seen;
  const auto held = start(probe_request({"pause"}), held_seen);
  ::kill(held->pid(), SIGSTOP);  // as a file server that does not answer would, mostly in time
  const auto worker = start(probe_request({"exit", "3"}), seen);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.exit.status.value == 3);
  SECTION("it may be let go") {
    ::kill(held->pid(), SIGCONT);
    REQUIRE(until([&] { return held_seen.spawned == 1; }));
    CHECK(held_seen.ended == 0);
  }
  SECTION("or be killed") {}
  held->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return held_seen.gone == 1; }));
  CHECK(held_seen.exit.status.value == SIGKILL);
  CHECK(held_seen.unkillable == 0);
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "a daemon that left session and parent belongs to its worker") {
  Observed seen;
  Observed other_seen;
  WorkerRequest request = probe_request({"daemon", folder.path("pid")});
  request.marker = "MUSTER_RUN_DIR=" + folder.path("0");
  request.spawn.environment["MUSTER_RUN_DIR"] = folder.path("0");
  WorkerRequest other = probe_request({"pause"});
  other.marker = "MUSTER_RUN_DIR=" + folder.path("1");
  other.spawn.environment["MUSTER_RUN_DIR"] = folder.path("1");
  const auto worker = start(request, seen);
  const auto bystander = start(other, other_seen);
  REQUIRE(until([&] { return seen.ended == 1; }));
  const pid_t daemon = read_pid(folder.path("pid"));
  REQUIRE(is_running(daemon));
  CHECK(seen.exit.status.succeeded());
  CHECK(seen.gone == 0);
  // The one between, which forked the daemon, may take its time to end.
  CHECK(until([&] { return worker->descendants() == std::vector<pid_t>{daemon}; }));
  CHECK(bystander->descendants().empty());
  worker->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK_FALSE(is_running(daemon));
  CHECK(bystander->alive());
  bystander->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return other_seen.gone == 1; }));
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "a daemon is killed with its worker while the worker lives") {
  Observed seen;
  const auto worker = start(probe_request({"daemon", folder.path("pid"), "stay"}), seen);
  REQUIRE(until([&] { return read_pid(folder.path("pid")) != 0; }));
  const pid_t daemon = read_pid(folder.path("pid"));
  worker->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK_FALSE(is_running(daemon));
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "a daemon without a mark goes with the worker that goes last") {
  Observed seen;
  Observed other_seen;
  const auto worker = start(probe_request({"bare-daemon", folder.path("pid")}), seen);
  const auto other = start(probe_request({"pause"}), other_seen);
  REQUIRE(until([&] { return seen.gone == 1; }));
  const pid_t daemon = read_pid(folder.path("pid"));
  CHECK(is_running(daemon));
  other->signal(SIGKILL, SignalScope::kLeader);
  REQUIRE(until([&] { return other_seen.ended == 1; }));
  CHECK(other_seen.gone == 0);
  other->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return other_seen.gone == 1; }));
  CHECK_FALSE(is_running(daemon));
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "gone comes by itself when the last descendant ends") {
  Observed seen;
  const auto worker = start(
      shell_request("(while [ ! -e " + folder.path("go") + " ]; do sleep 0.01; done) & exit 0"),
      seen);
  REQUIRE(until([&] { return seen.ended == 1; }));
  CHECK(seen.gone == 0);
  REQUIRE(::close(::creat(folder.path("go").c_str(), 0600)) == 0);
  REQUIRE(until([&] { return seen.gone == 1; }));
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "a worker that keeps breeding is killed to the last child") {
  Observed seen;
  const auto worker = start(probe_request({"breed", "100000"}), seen);
  REQUIRE(until([&] { return worker->descendants().size() > 30; }));
  worker->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(until([&] { return seen.gone == 1; }));
  CHECK(seen.unkillable == 0);
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "eight workers crash at once, each is told once, in one order") {
  std::vector<Observed> seen(8);
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  for (Observed& observed : seen)
    workers.push_back(start(probe_request({"pause"}), observed));
  REQUIRE(until([&] {
    for (const Observed& observed : seen) {
      if (observed.spawned == 0) return false;
    }
    return true;
  }));
  for (const auto& worker : workers)
    ::kill(worker->pid(), SIGABRT);
  std::set<std::uint64_t> orders;
  for (Observed& observed : seen) {
    REQUIRE(until([&] { return observed.gone == 1; }));
    CHECK(observed.ended == 1);
    CHECK(observed.exit.status.value == SIGABRT);
    orders.insert(observed.exit.order);
  }
  CHECK(orders.size() == 8);
  CHECK(*orders.rbegin() - *orders.begin() == 7);
  check_nothing_left();
}

TEST_CASE_METHOD(Fixture, "the order is that of the endings") {
  Observed first;
  Observed second;
  const auto a = start(probe_request({"pause"}), first);
  const auto b = start(probe_request({"pause"}), second);
  REQUIRE(until([&] { return first.spawned == 1 && second.spawned == 1; }));
  // Both are dead before the loop looks.
  for (const auto* worker : {&b, &a}) {
    ::kill((*worker)->pid(), SIGKILL);
    REQUIRE(wait_until([&] { return !is_running((*worker)->pid()); }));
  }
  REQUIRE(until([&] { return first.gone == 1 && second.gone == 1; }));
  CHECK(second.exit.order < first.exit.order);
}

TEST_CASE_METHOD(Fixture, "a destroyed worker takes everything with it") {
  Observed seen;
  auto worker = start(probe_request({"daemon", folder.path("pid"), "stay"}), seen);
  REQUIRE(until([&] { return read_pid(folder.path("pid")) != 0; }));
  const pid_t leader = worker->pid();
  const pid_t daemon = read_pid(folder.path("pid"));
  worker.reset();
  REQUIRE(until([&] { return !read_process(leader) && !is_running(daemon); }));
  CHECK(seen.ended == 0);
  CHECK(seen.gone == 0);
}

TEST_CASE_METHOD(Fixture, "a destroyed supervisor leaves nothing, whatever its workers do") {
  Observed seen;
  Observed other;
  const auto worker = start(probe_request({"daemon", folder.path("pid"), "stay"}), seen);
  const auto breeder = start(probe_request({"breed", "100000"}), other);
  REQUIRE(until([&] { return read_pid(folder.path("pid")) != 0; }));
  supervisor.reset();
  CHECK_FALSE(is_running(read_pid(folder.path("pid"))));
  check_nothing_left();
  worker->signal(SIGTERM, SignalScope::kGroup);  // no effect, no harm
}

TEST_CASE_METHOD(Fixture, "callbacks may destroy their worker") {
  for (const std::string at : {"spawned", "ended", "gone"}) {
    std::unique_ptr<WorkerProcess> worker;
    bool destroyed = false;
    WorkerCallbacks calls;
    const auto destroy = [&] {
      worker.reset();
      destroyed = true;
    };
    if (at == "spawned") calls.spawned = [&](pid_t) { destroy(); };
    if (at == "ended") calls.ended = [&](const WorkerExit&) { destroy(); };
    if (at == "gone") calls.gone = [&] { destroy(); };
    worker = supervisor->start(probe_request({"exit", "0"}), calls);
    REQUIRE(until([&] { return destroyed; }));
  }
  REQUIRE(until([&] { return ::waitpid(-1, nullptr, WNOHANG) == -1; }));
}

TEST_CASE("children from before the supervisor are left alone") {
  starting_state();
  const pid_t before = ::fork();
  if (before == 0) {
    ::execl(PROBE, "probe", "exit", "7", nullptr);
    ::_exit(1);
  }
  IoLoop loop;
  auto supervisor = std::make_unique<Supervisor>(loop.context());
  Observed seen;
  const auto worker = supervisor->start(probe_request({"exit", "0"}), seen.callbacks());
  REQUIRE(run_until(loop, [&] { return seen.gone == 1; }));
  supervisor.reset();
  int status = 0;
  CHECK(::waitpid(before, &status, 0) == before);
  CHECK(WEXITSTATUS(status) == 7);
}

}  // namespace
}  // namespace muster::agent
