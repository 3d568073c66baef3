// SPDX-License-Identifier: Apache-2.0
//
// A Console with workers that are real processes, and screens that tests read.
#pragma once

#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/shell/console.h"
#include "agent/shell/terminal/pty.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {

// The other end of a pipe or terminal that plays the console; read without blocking.
struct Screen {
  explicit Screen(bool terminal = false) {
    if (terminal) {
      auto pty = open_pty(-1);
      REQUIRE(pty);
      ours = std::move(pty->master);
      theirs = std::move(pty->slave);
      return;
    }
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
    ours.reset(fds[0]);
    theirs.reset(fds[1]);
    ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  }

  const std::string& read() {
    char buffer[65536];
    for (ssize_t count = 1; count > 0;) {
      count = ::read(ours.get(), buffer, sizeof buffer);
      if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }

  UniqueFd ours;
  UniqueFd theirs;
  std::string text;
};

struct ConsoleFixture {
  ConsoleFixture() {
    starting_state();
    supervisor = std::make_unique<Supervisor>(loop.context());
  }

  void open(ConsoleMode mode, std::uint32_t count, int out, int err) {
    open(ConsoleConfig{mode, count, out, err, folder.path(".")});
  }
  void open(ConsoleConfig config) {
    console = std::make_unique<Console>(loop.context(), std::move(config));
  }

  void start(WorkerRequest request, WorkerOutput output) {
    WorkerEnds ends = console->open_worker(output);
    request.spawn.stdio.out = ends.out_fd;
    request.spawn.stdio.err = ends.err_fd;
    observed.push_back(std::make_unique<Observed>());
    workers.push_back(supervisor->start(request, observed.back()->callbacks()));
  }

  bool until(const std::function<bool()>& holds) { return run_until(loop, holds); }

  // All workers gone, their output at its end and written.
  void finish(Screen& a, Screen& b, Duration limit = 20s) {
    REQUIRE(until([&] {
      a.read();
      b.read();
      return std::all_of(observed.begin(), observed.end(),
                         [](const auto& o) { return o->gone == 1; });
    }));
    std::size_t ended = 0;
    for (std::uint32_t rank = 0; rank < workers.size(); ++rank) {
      console->finish_worker(rank, limit, [&] { ++ended; });
    }
    bool flushed = false;
    REQUIRE(until([&] {
      a.read();
      b.read();
      return ended == workers.size();
    }));
    console->flush(20s, 20s, [&] { flushed = true; });
    REQUIRE(until([&] {
      a.read();
      b.read();
      return flushed;
    }));
    a.read();
    b.read();
  }

  TempFolder folder;
  IoLoop loop;
  std::unique_ptr<Supervisor> supervisor;
  std::unique_ptr<Console> console;
  std::vector<std::unique_ptr<Observed>> observed;
  std::vector<std::unique_ptr<WorkerProcess>> workers;
};

inline WorkerOutput rank_output(std::uint32_t rank) {
  WorkerOutput output;
  output.local_rank = rank;
  output.rank = rank;
  return output;
}

}  // namespace muster::agent
