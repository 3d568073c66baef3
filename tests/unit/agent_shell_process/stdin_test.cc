// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <memory>
#include <signal.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/shell/stdin_feed.h"
#include "agent/shell/terminal/pty.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

struct Fixture {
  Fixture() {
    starting_state();
    supervisor = std::make_unique<Supervisor>(loop.context());
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
    input.reset(fds[0]);
    keyboard.reset(fds[1]);
  }

  void open(StdinConfig config) {
    config.fd = input.get();
    feed = std::make_unique<StdinFeed>(loop.context(), config);
  }

  // A worker that copies its input to a file.
  void start_copy(std::uint32_t rank) {
    const StdinEnd end = feed->open_worker(rank);
    WorkerRequest request = shell_request("exec cat >" + folder.path(std::to_string(rank)));
    request.spawn.stdio.in = end.fd;
    observed.push_back(std::make_unique<Observed>());
    workers.push_back(supervisor->start(request, observed.back()->callbacks()));
  }

  void type(const std::string& text) {
    REQUIRE(::write(keyboard.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }

  std::string copied(std::uint32_t rank) { return read_text(folder.path(std::to_string(rank))); }
  bool until(const std::function<bool()>& holds) { return run_until(loop, holds); }

  TempFolder folder;
  IoLoop loop;
  std::unique_ptr<Supervisor> supervisor;
  UniqueFd input;
  UniqueFd keyboard;
  std::unique_ptr<StdinFeed> feed;
  std::vector<std::unique_ptr<Observed>> observed;
  std::vector<std::unique_ptr<WorkerProcess>> workers;
};

TEST_CASE_METHOD(Fixture, "local rank 0 gets a piped input itself, the others none") {
  open({});
  CHECK(feed->open_worker(0).fd == input.get());
  CHECK(feed->open_worker(1).fd == -1);
  open({.local_rank = 1});
  CHECK(feed->open_worker(0).fd == -1);
  CHECK(feed->open_worker(1).fd == input.get());
  open({.local_rank = std::nullopt});
  CHECK(feed->open_worker(0).fd == -1);
}

TEST_CASE_METHOD(Fixture, "all workers get all of the input, and its end") {
  open({.all = true});
  start_copy(0);
  start_copy(1);
  type("hello\n");
  REQUIRE(until([&] { return copied(0) == "hello\n" && copied(1) == "hello\n"; }));
  type(std::string(10'000, 'x'));
  keyboard.reset();
  REQUIRE(until([&] { return observed[0]->gone == 1 && observed[1]->gone == 1; }));
  for (const std::uint32_t rank : {0U, 1U}) {
    CHECK(copied(rank) == "hello\n" + std::string(10'000, 'x'));
  }
  // Who comes later sees the end at once.
  start_copy(2);
  REQUIRE(until([&] { return observed[2]->gone == 1; }));
}

TEST_CASE_METHOD(Fixture, "a worker that does not read blocks nobody for ever") {
  open({.all = true});
  const StdinEnd lazy = feed->open_worker(0);
  start_copy(1);
  const std::string text(60'000, 'y');
  type(text);
  type(text.substr(0, 5000));
  // The lazy one's pipe takes 64 KiB and no more; when it goes, the other goes on.
  REQUIRE(until([&] { return copied(1).size() > 30'000; }));
  feed->close_worker(0);
  REQUIRE(until([&] { return copied(1).size() == 65'000; }));
  keyboard.reset();
  REQUIRE(until([&] { return observed[0]->gone == 1; }));
}

TEST_CASE_METHOD(Fixture, "a worker that closed its input is left out") {
  open({.all = true});
  { const StdinEnd closed = feed->open_worker(0); }
  start_copy(1);
  type("a\n");
  REQUIRE(until([&] { return copied(1) == "a\n"; }));
  type("b\n");
  REQUIRE(until([&] { return copied(1) == "a\nb\n"; }));
  keyboard.reset();
  REQUIRE(until([&] { return observed[0]->gone == 1; }));
}

TEST_CASE_METHOD(Fixture, "no thread and no descriptor is left of a feed that waits") {
  const std::size_t before = count_descriptors();
  open({.all = true});
  {
    const StdinEnd end = feed->open_worker(0);
    bool turned = false;
    loop.post([&] { turned = true; });
    REQUIRE(until([&] { return turned; }));
  }
  feed.reset();
  REQUIRE(until([&] { return count_descriptors() == before; }));
}

// A session of its own with a terminal, one process group of two in the foreground.
TEST_CASE("in the background a terminal is neither read nor able to stop us") {
  starting_state();
  const TempFolder folder;
  auto pty = open_pty(-1);
  REQUIRE(pty);
  const pid_t leader = ::fork();
  if (leader == 0) {
    ::setsid();
    ::ioctl(pty->slave.get(), TIOCSCTTY, 0);
    const pid_t agent = ::fork();
    if (agent == 0) {
      ::setpgid(0, 0);
      IoLoop loop;
      StdinFeed feed(loop.context(), {.fd = pty->slave.get()});
      const StdinEnd end = feed.open_worker(0);
      ::fcntl(end.fd, F_SETFL, O_NONBLOCK);
      std::string got;
      char buffer[100];
      ::close(::creat(folder.path("ready").c_str(), 0600));
      const bool fed = run_until(loop, [&] {
        const ssize_t count = ::read(end.fd, buffer, sizeof buffer);
        if (count > 0) got.append(buffer, static_cast<std::size_t>(count));
        if (!got.empty() && ::tcgetpgrp(pty->slave.get()) != ::getpgrp()) ::_exit(2);
        return got == "typed\n";
      });
      ::_exit(fed ? 0 : 1);
    }
    ::setpgid(agent, agent);
    while (::access(folder.path("ready").c_str(), F_OK) != 0)
      ::usleep(1000);
    // Typed while the agent is in the background: it stays there.
    if (::write(pty->master.get(), "typed\n", 6) != 6) ::_exit(3);
    ::usleep(100'000);
    ::tcsetpgrp(pty->slave.get(), agent);
    int status = 0;
    ::waitpid(agent, &status, WUNTRACED);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
  }
  int status = 0;
  REQUIRE(::waitpid(leader, &status, 0) == leader);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace muster::agent
