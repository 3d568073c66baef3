// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/console.h"

#include <algorithm>
#include <fcntl.h>
#include <map>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/ioctl.h>
#include <termios.h>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/agent_shell_process/console_fixture.h"

namespace muster::agent {
namespace {

TEST_CASE_METHOD(ConsoleFixture, "stdout goes to stdout, stderr to stderr, bytes unchanged") {
  Screen out;
  Screen err;
  open(ConsoleMode::kAuto, 2, out.theirs.get(), err.theirs.get());
  CHECK(console->mode() == ConsoleMode::kLines);
  start(shell_request("printf 'a\\0b\\377\\n'; echo e1 >&2; printf end"), rank_output(0));
  finish(out, err);
  CHECK(out.text == std::string("a\0b\xff\nend", 8));
  CHECK(err.text == "e1\n");
  CHECK(console->tail(0) == "e1");
}

TEST_CASE_METHOD(ConsoleFixture, "auto is raw for one worker on a terminal, prefixed for more") {
  Screen terminal(true);
  const int fd = terminal.theirs.get();
  CHECK(resolve_console_mode({ConsoleMode::kAuto, 1, fd, fd}) == ConsoleMode::kRaw);
  CHECK(resolve_console_mode({ConsoleMode::kAuto, 2, fd, fd}) == ConsoleMode::kPrefixed);
  CHECK(resolve_console_mode({ConsoleMode::kNone, 2, fd, fd}) == ConsoleMode::kNone);
  open(ConsoleMode::kAuto, 1, fd, fd);
  const WorkerEnds ends = console->open_worker(rank_output(0));
  CHECK(ends.out_fd == fd);
  CHECK(ends.err_fd == fd);
  CHECK_FALSE(ends.out.valid());
  CHECK(console->tail(0).empty());
}

TEST_CASE_METHOD(ConsoleFixture, "prefixed lines of several ranks never mix") {
  Screen out;
  Screen err;
  open(ConsoleMode::kPrefixed, 4, out.theirs.get(), err.theirs.get());
  const std::vector<std::string> tags{"a", "b", "c", "d"};
  constexpr long kLines = 3000;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    start(probe_request({"flood", tags[rank], std::to_string(kLines)}), rank_output(rank));
  }
  finish(out, err);
  std::map<std::string, long> next;
  std::istringstream lines(out.text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string prefix;
    std::string tag;
    std::string filler;
    long number = -1;
    words >> prefix >> tag >> number >> filler;
    REQUIRE(std::find(tags.begin(), tags.end(), tag) != tags.end());
    REQUIRE(prefix == "[" + std::to_string(tag[0] - 'a') + "]");
    REQUIRE(number == next[tag]++);
    REQUIRE(filler == std::string(80, tag[0]));
  }
  for (const std::string& tag : tags)
    CHECK(next[tag] == kLines);
}

TEST_CASE_METHOD(ConsoleFixture, "50 MB through two workers arrive to the byte") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 2, out.theirs.get(), err.theirs.get());
  constexpr long kLines = 280'000;  // about 25 MB each
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    WorkerOutput output = rank_output(rank);
    output.stdout_log = folder.path(std::to_string(rank));
    start(probe_request({"flood", rank == 0 ? "x" : "y", std::to_string(kLines)}), output);
  }
  finish(out, err);
  CHECK(out.text.size() > 48'000'000);
  std::string mine[2];
  std::size_t at = 0;
  while (at < out.text.size()) {
    const std::size_t end = out.text.find('\n', at) + 1;
    mine[out.text[at] == 'x' ? 0 : 1].append(out.text, at, end - at);
    at = end;
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK((mine[rank] == read_text(folder.path(std::to_string(rank)))));
    CHECK(std::count(mine[rank].begin(), mine[rank].end(), '\n') == kLines);
  }
}

TEST_CASE_METHOD(ConsoleFixture, "a partial line is shown, and ended before another's") {
  Screen out;
  Screen err;
  open(ConsoleMode::kPrefixed, 2, out.theirs.get(), err.theirs.get());
  start(shell_request("printf 'Name: '; while [ ! -e " + folder.path("go") +
                      " ]; do sleep 0.01; done; echo x"),
        rank_output(0));
  REQUIRE(until([&] { return out.read() == "[0] Name: "; }));
  start(shell_request("echo other"), rank_output(1));
  REQUIRE(until([&] { return out.read() == "[0] Name: \n[1] other\n"; }));
  REQUIRE(::close(::creat(folder.path("go").c_str(), 0600)) == 0);
  finish(out, err);
  CHECK(out.text == "[0] Name: \n[1] other\n[0] x\n");
}

TEST_CASE_METHOD(ConsoleFixture, "off a terminal a progress display leaves its last state") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 2, out.theirs.get(), err.theirs.get());
  start(shell_request("for i in 1 2 3 4 5; do printf '\\r %s' $i; done; echo; echo end"),
        rank_output(0));
  finish(out, err);
  CHECK(out.text == " 5\nend\n");
}

TEST_CASE_METHOD(ConsoleFixture, "on a terminal progress is shown at most four times a second") {
  Screen terminal(true);
  Screen unused;
  open(ConsoleMode::kPrefixed, 2, terminal.theirs.get(), terminal.theirs.get());
  const Instant begin = IoLoop::now();
  start(shell_request("for i in $(seq 1 100); do printf '\\r step %s' $i; sleep 0.005; done; echo"),
        rank_output(0));
  finish(terminal, unused);
  const double seconds = to_seconds(IoLoop::now() - begin);
  const auto shown = std::count(terminal.text.begin(), terminal.text.end(), '\r');
  CHECK(shown >= 1);
  CHECK(static_cast<double>(shown) <= 2 + 4 * seconds);
  CHECK(terminal.text.ends_with("[0]  step 100\n"));
}

TEST_CASE_METHOD(ConsoleFixture, "rank0 shows rank 0 alone, none nobody, and tails are kept") {
  for (const ConsoleMode mode : {ConsoleMode::kRank0, ConsoleMode::kNone}) {
    Screen out;
    Screen err;
    observed.clear();
    workers.clear();
    open(mode, 2, out.theirs.get(), err.theirs.get());
    start(shell_request("echo zero; echo e0 >&2"), rank_output(0));
    start(shell_request("echo one; echo e1 >&2"), rank_output(1));
    finish(out, err);
    const bool rank0 = mode == ConsoleMode::kRank0;
    CHECK(out.text == (rank0 ? "zero\n" : ""));
    CHECK(err.text == (rank0 ? "e0\n" : ""));
    CHECK(console->tail(0) == "e0");
    CHECK(console->tail(1) == "e1");
    console.reset();
  }
}

TEST_CASE_METHOD(ConsoleFixture, "the tail has what a worker wrote just before it died") {
  Screen out;
  Screen err;
  open(ConsoleMode::kNone, 1, out.theirs.get(), err.theirs.get());
  std::string tail;
  WorkerEnds ends = console->open_worker(rank_output(0));
  WorkerRequest request =
      shell_request("i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i >&2; done; kill -9 $$");
  request.spawn.stdio.out = ends.out_fd;
  request.spawn.stdio.err = ends.err_fd;
  WorkerCallbacks calls;
  bool ended = false;
  calls.ended = [&](const WorkerExit&) {
    tail = console->tail(0);
    ended = true;
  };
  const auto worker = supervisor->start(request, calls);
  ends = WorkerEnds();
  REQUIRE(until([&] { return ended; }));
  CHECK(tail.starts_with("line 11\n"));
  CHECK(tail.ends_with("\nline 30"));
}

TEST_CASE_METHOD(ConsoleFixture, "a closed console costs one line, logs go on") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 1, out.theirs.get(), err.theirs.get());
  out.ours.reset();
  WorkerOutput output = rank_output(0);
  output.stdout_log = folder.path("log");
  start(probe_request({"flood", "z", "20000"}), output);
  finish(out, err);
  CHECK(observed[0]->exit.status.succeeded());
  CHECK(err.text ==
        "muster: cannot write to stdout: Broken pipe; what cannot be shown is dropped, the job "
        "goes on\n");
  const std::string log = read_text(folder.path("log"));
  CHECK(std::count(log.begin(), log.end(), '\n') == 20000);
  CHECK(console->counters().console_bytes_dropped == log.size());
}

TEST_CASE_METHOD(ConsoleFixture,
                 "a blocked stdout delays neither stderr nor another worker's files") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 2, out.theirs.get(), err.theirs.get());
  WorkerOutput hidden = rank_output(1);
  hidden.stdout_on_console = false;
  hidden.stdout_log = folder.path("log");
  start(probe_request({"flood", "a", "100000"}), rank_output(0));
  start(shell_request(std::string(PROBE) + " flood b 20000; echo done >&2"), hidden);
  // Nobody reads `out`: neither worker notices, and what it does not take is kept.
  REQUIRE(until([&] { return observed[1]->gone == 1 && err.read() == "done\n"; }));
  REQUIRE(until([&] { return observed[0]->gone == 1; }));
  bool ended = false;
  console->finish_worker(1, 20s, [&] { ended = true; });
  REQUIRE(until([&] { return ended; }));
  REQUIRE(wait_until([&] {
    const std::string log = read_text(folder.path("log"));
    return std::count(log.begin(), log.end(), '\n') == 20000;
  }));
  CHECK((::fcntl(out.theirs.get(), F_GETFL) & O_NONBLOCK) == 0);
  finish(out, err);
  CHECK(std::count(out.text.begin(), out.text.end(), '\n') == 100000);
}

TEST_CASE_METHOD(ConsoleFixture,
                 "the last wait ends with the reader's patience, a limit, or a signal") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 1, out.theirs.get(), err.theirs.get());
  start(probe_request({"flood", "a", "100000"}), rank_output(0));
  bool ended = false;
  REQUIRE(until([&] { return observed[0]->gone == 1; }));
  console->finish_worker(0, 20s, [&] { ended = true; });
  REQUIRE(until([&] { return ended; }));
  for (const auto& [patience, limit, gives_up] :
       {std::tuple{100ms, 3600s, false}, {3600000ms, 0s, false}, {3600000ms, 3600s, true}}) {
    bool over = false;
    console->flush(patience, limit, [&] { over = true; });
    if (gives_up) console->give_up();
    REQUIRE(until([&] { return over; }));
  }
  CHECK(console->missing().find("bytes of stdout") != std::string::npos);
  // A reader that begins late gets all.
  finish(out, err);
  CHECK(console->missing().empty());
  CHECK(std::count(out.text.begin(), out.text.end(), '\n') == 100000);
}

TEST_CASE_METHOD(ConsoleFixture, "what redirected output loses in its log is on the console") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 1, out.theirs.get(), err.theirs.get());
  WorkerOutput output = rank_output(0);
  output.stdout_log = "/dev/full";
  output.stdout_on_console = false;
  start(probe_request({"flood", "z", "5000"}), output);
  WorkerOutput other = rank_output(1);
  other.stderr_log = folder.path("no/such/folder/log");
  other.stderr_on_console = false;
  start(shell_request("echo precious >&2; printf end >&2"), other);
  finish(out, err);
  CHECK(std::count(out.text.begin(), out.text.end(), '\n') == 5000);
  CHECK(err.text.find("precious\nend") != std::string::npos);
  const std::size_t line = err.text.find("(--log-dir)");
  REQUIRE(line != std::string::npos);
  CHECK(err.text.find("(--log-dir)", line + 1) == std::string::npos);
}

TEST_CASE_METHOD(ConsoleFixture, "a full disk costs one line and stops nobody") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 1, out.theirs.get(), err.theirs.get());
  WorkerOutput output = rank_output(0);
  output.stdout_log = "/dev/full";
  output.stderr_log = folder.path("no/such/folder/log");
  start(probe_request({"flood", "z", "5000"}), output);
  finish(out, err);
  CHECK(observed[0]->exit.status.succeeded());
  CHECK(std::count(out.text.begin(), out.text.end(), '\n') == 5000);
  CHECK(std::count(err.text.begin(), err.text.end(), '\n') == 1);
  CHECK(err.text.find("no/such/folder/log: No such file or directory") != std::string::npos);
  CHECK(console->counters().log_bytes_dropped == out.text.size());
}

TEST_CASE_METHOD(ConsoleFixture, "a worker that closes its stdout is no reason for anything") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 1, out.theirs.get(), err.theirs.get());
  start(shell_request("echo before; exec >&-; echo after >&2; exit 4"), rank_output(0));
  finish(out, err);
  CHECK(out.text == "before\n");
  CHECK(err.text == "after\n");
  CHECK(observed[0]->exit.status.value == 4);
}

TEST_CASE_METHOD(ConsoleFixture, "a daemon that holds the pipe does not hold the end") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 1, out.theirs.get(), err.theirs.get());
  start(shell_request("echo last words; " + std::string(PROBE) + " daemon " + folder.path("pid")),
        rank_output(0));
  REQUIRE(until([&] { return observed[0]->ended == 1; }));
  REQUIRE(is_running(read_pid(folder.path("pid"))));
  bool ended = false;
  console->finish_worker(0, 50ms, [&] { ended = true; });
  REQUIRE(until([&] { return ended; }));
  CHECK(observed[0]->gone == 0);
  REQUIRE(until([&] { return out.read() == "last words\n"; }));
  workers[0]->signal(SIGKILL, SignalScope::kDescendants);
  finish(out, err);
}

TEST_CASE_METHOD(ConsoleFixture, "a rank's next life gets pipes of its own") {
  Screen out;
  Screen err;
  open(ConsoleMode::kLines, 1, out.theirs.get(), err.theirs.get());
  const std::size_t before = count_descriptors();
  for (int life = 0; life < 5; ++life) {
    observed.clear();
    workers.clear();
    start(shell_request("echo life >&2; exit 1"), rank_output(0));
    finish(out, err);
    CHECK(console->tail(0) == "life");
  }
  CHECK(count_descriptors() == before);
  CHECK(err.text == "life\nlife\nlife\nlife\nlife\n");
}

TEST_CASE_METHOD(ConsoleFixture, "in pty mode programs see a terminal of the right size") {
  Screen out(true);
  Screen err;
  winsize size{};
  size.ws_row = 33;
  size.ws_col = 99;
  ::ioctl(out.theirs.get(), TIOCSWINSZ, &size);
  open(ConsoleMode::kPty, 1, out.theirs.get(), err.theirs.get());
  start(shell_request(std::string(PROBE) + " show | grep ttys; stty size <&2; "
                                           "[ -t 1 ] && [ -t 2 ] && echo yes; echo e >&2"),
        rank_output(0));
  finish(out, err);
  CHECK(out.text == "ttys=001\n33 99\nyes\n");
  CHECK(err.text == "e\n");
  CHECK(console->tail(0) == "e");
}

TEST_CASE_METHOD(ConsoleFixture, "Muster's own lines end a worker's partial line") {
  Screen both;
  Screen unused;
  open(ConsoleMode::kLines, 1, both.theirs.get(), both.theirs.get());
  start(shell_request("printf partial; while :; do sleep 0.01; done"), rank_output(0));
  REQUIRE(until([&] { return both.read() == "partial"; }));
  console->say("stopping");
  workers[0]->signal(SIGKILL, SignalScope::kDescendants);
  finish(both, unused);
  CHECK(both.text == "partial\nmuster: stopping\n");
}

}  // namespace
}  // namespace muster::agent
