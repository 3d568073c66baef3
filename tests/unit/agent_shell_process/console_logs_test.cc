// SPDX-License-Identifier: Apache-2.0
//
// Prefixes, picked lines, log files that are put away, and disks that are full for a while.
#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/shell/console_out.h"
#include "agent/shell/output_writer.h"
#include "tests/unit/agent_shell_process/console_fixture.h"

namespace muster::agent {
namespace {

using Lines = std::multiset<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.insert(line);
  return lines;
}

ConsoleConfig config_of(ConsoleMode mode, std::uint32_t count, const Screen& out,
                        const Screen& err) {
  ConsoleConfig config;
  config.mode = mode;
  config.local_workers = count;
  config.stdout_fd = out.theirs.get();
  config.stderr_fd = err.theirs.get();
  config.job = "train";
  config.node = "n7";
  return config;
}

// No file of this process grows beyond so many bytes while it lives: a full disk.
struct FullDisk {
  explicit FullDisk(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit limited{bytes, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::signal(SIGXFSZ, SIG_DFL);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  rlimit before{};
};

TEST_CASE_METHOD(ConsoleFixture, "a prefix names what it is told to") {
  Screen out;
  Screen err;
  ConsoleConfig config = config_of(ConsoleMode::kPrefixed, 2, out, err);
  config.prefix = "{job}/{node}/{generation}/{rank}.{local_rank}| ";
  open(config);
  WorkerOutput output = rank_output(0);
  output.rank = 9;
  output.generation = 3;
  start(shell_request("echo a; echo b; echo e >&2"), output);
  finish(out, err);
  CHECK(out.text == "train/n7/3/9.0| a\ntrain/n7/3/9.0| b\n");
  CHECK(err.text == "train/n7/3/9.0| e\n");
}

TEST_CASE_METHOD(ConsoleFixture, "a prefix that was asked for is shown off a terminal too") {
  Screen out;
  Screen err;
  ConsoleConfig config = config_of(ConsoleMode::kAuto, 1, out, err);
  CHECK(resolve_console_mode(config) == ConsoleMode::kLines);
  config.prefix_given = true;
  CHECK(resolve_console_mode(config) == ConsoleMode::kPrefixed);
  const Screen terminal(true);
  config.stdout_fd = terminal.theirs.get();
  CHECK(resolve_console_mode(config) == ConsoleMode::kRaw);
}

TEST_CASE_METHOD(ConsoleFixture, "picked lines of all workers are in one file, whatever is shown") {
  for (const ConsoleMode mode : {ConsoleMode::kNone, ConsoleMode::kLines, ConsoleMode::kRaw}) {
    Screen out;
    Screen err;
    observed.clear();
    workers.clear();
    ConsoleConfig config = config_of(mode, 2, out, err);
    config.stdout_filters = {"loss", "3,4"};
    config.stderr_filters = {"bad"};
    open(config);
    const std::string name = std::to_string(static_cast<int>(mode));
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      WorkerOutput output = rank_output(rank);
      output.stdout_on_console = rank == 0;  // --local-ranks-filter 0
      output.stdout_picked = folder.path("out" + name);
      output.stderr_picked = folder.path("err" + name);
      start(shell_request("echo loss 1; echo other; echo 3,4; printf 'x loss'; echo bad >&2;"
                          " echo good >&2"),
            output);
    }
    finish(out, err);
    CHECK(lines_of(read_text(folder.path("out" + name))) ==
          Lines{"[0] loss 1", "[0] 3,4", "[0] x loss", "[1] loss 1", "[1] 3,4", "[1] x loss"});
    CHECK(lines_of(read_text(folder.path("err" + name))) == Lines{"[0] bad", "[1] bad"});
    CHECK(out.text == (mode == ConsoleMode::kNone ? "" : "loss 1\nother\n3,4\nx loss"));
    CHECK(console->tail(1) == "bad\ngood");
    CHECK(console->missing_in_logs().empty());
    console.reset();
  }
}

TEST_CASE_METHOD(ConsoleFixture, "in raw mode only the stream with a filter is a pipe") {
  Screen out;
  Screen err;
  ConsoleConfig config = config_of(ConsoleMode::kRaw, 1, out, err);
  config.stdout_filters = {"x"};
  open(config);
  WorkerOutput output = rank_output(0);
  output.stdout_picked = folder.path("picked");
  const WorkerEnds ends = console->open_worker(output);
  CHECK(ends.out.valid());
  CHECK(ends.out_fd == ends.out.get());
  CHECK(ends.err_fd == err.theirs.get());
}

TEST_CASE_METHOD(ConsoleFixture, "50 MB of picked lines of two workers arrive to the byte") {
  Screen out;
  Screen err;
  ConsoleConfig config = config_of(ConsoleMode::kNone, 2, out, err);
  config.stdout_filters = {"7"};
  config.prefix = "";
  open(config);
  constexpr long kLines = 280'000;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    WorkerOutput output = rank_output(rank);
    output.stdout_picked = folder.path("picked");
    start(probe_request({"flood", rank == 0 ? "x" : "y", std::to_string(kLines)}), output);
  }
  finish(out, err);
  std::vector<std::string> expected[2];
  for (long line = 0; line < kLines; ++line) {
    const std::string number = std::to_string(line);
    if (number.find('7') == std::string::npos) continue;
    expected[0].push_back("x " + number + " " + std::string(80, 'x'));
    expected[1].push_back("y " + number + " " + std::string(80, 'y'));
  }
  std::vector<std::string> found[2];
  std::istringstream in(read_text(folder.path("picked")));
  for (std::string line; std::getline(in, line);)
    found[line[0] == 'x' ? 0 : 1].push_back(line);
  CHECK((found[0] == expected[0]));
  CHECK((found[1] == expected[1]));
}

TEST_CASE_METHOD(ConsoleFixture, "a log that is put away has every line, in order") {
  Screen out;
  Screen err;
  ConsoleConfig config = config_of(ConsoleMode::kLines, 1, out, err);
  config.rotation = {100'000, 50};
  open(config);
  WorkerOutput output = rank_output(0);
  output.stdout_log = folder.path("log");
  output.stdout_on_console = false;
  start(probe_request({"flood", "z", "30000"}), output);
  finish(out, err);
  CHECK(out.text.empty());
  CHECK(err.text.empty());
  std::string all;
  for (int number = 50; number > 0; --number)
    all += read_text(folder.path("log." + std::to_string(number)));
  all += read_text(folder.path("log"));
  std::string expected;
  for (int line = 0; line < 30000; ++line)
    expected += "z " + std::to_string(line) + " " + std::string(80, 'z') + "\n";
  CHECK((all == expected));
  CHECK(std::filesystem::exists(folder.path("log.20")));
}

TEST_CASE_METHOD(ConsoleFixture, "a log that cannot be put away costs one line and goes on") {
  Screen out;
  Screen err;
  ConsoleConfig config = config_of(ConsoleMode::kNone, 1, out, err);
  config.rotation = {10'000, 1};
  open(config);
  WorkerOutput output = rank_output(0);
  output.stdout_log = folder.path("log");
  std::filesystem::create_directories(folder.path("log.1/in/the/way"));
  start(probe_request({"flood", "z", "3000"}), output);
  finish(out, err);
  const std::string log = read_text(folder.path("log"));
  CHECK(std::count(log.begin(), log.end(), '\n') == 3000);
  CHECK(err.text == "muster: cannot put " + folder.path("log") +
                        " away: Is a directory (--log-rotate); it goes on growing\n");
}

TEST_CASE_METHOD(ConsoleFixture, "a disk that was full is told, counted, and written to again") {
  Screen out;
  Screen err;
  open(config_of(ConsoleMode::kNone, 1, out, err));
  WorkerOutput output = rank_output(0);
  output.stdout_log = folder.path("log");
  const std::string line = "line of output that is to be kept\n";
  REQUIRE(::mkfifo(folder.path("go").c_str(), 0600) == 0);
  start(shell_request("while read x; do for i in $(seq 1000); do echo line of output that is to be "
                      "kept; done; echo $x >>" +
                      folder.path("turns") + "; done <" + folder.path("go")),
        output);
  const auto turns = [&] { return read_text(folder.path("turns")).size() / 2; };
  UniqueFd go;
  REQUIRE(until([&] {
    go.reset(::open(folder.path("go").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    return go.valid();
  }));
  const auto turn = [&](std::size_t number) {
    REQUIRE(::write(go.get(), "x\n", 2) == 2);
    REQUIRE(until([&] { return turns() == number; }));
  };
  const auto on_disk = [&] { return read_text(folder.path("log")).size(); };
  {
    const FullDisk full(20 * line.size() + 5);
    turn(1);
    REQUIRE(until([&] { return out.read().size() == 980 * line.size() - 5; }));
    const std::string trouble = "muster: cannot write " + folder.path("log") +
                                ": File too large (--log-dir); what log files cannot take is shown "
                                "here, the job goes on\n";
    REQUIRE(until([&] { return err.read() == trouble; }));
  }
  turn(2);
  const std::size_t lost = 980 * line.size() - 5;
  REQUIRE(until([&] { return on_disk() == 2000 * line.size() - lost; }));
  const std::string again = "muster: " + folder.path("log") + " takes output again; " +
                            std::to_string(lost) + " bytes are missing in it\n";
  REQUIRE(until([&] { return err.read().ends_with(again); }));
  const std::size_t told = err.text.size();
  {
    const FullDisk full(on_disk());
    turn(3);
    REQUIRE(until([&] { return out.read().size() == lost + 1000 * line.size(); }));
  }
  turn(4);
  go.reset();
  finish(out, err);
  CHECK(on_disk() == 3000 * line.size() - lost);
  CHECK(err.text.size() == told);  // the second time is counted only
  CHECK(console->missing_in_logs() ==
        "log files lack " + std::to_string(lost + 1000 * line.size()) +
            " bytes of output that they could not take; it was shown here");
}

TEST_CASE("a writer that had no turn yet has its reader's patience before it") {
  int fds[2];
  REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
  UniqueFd reader(fds[0]);
  UniqueFd full(fds[1]);
  ::fcntl(full.get(), F_SETFL, O_NONBLOCK);
  const std::string block(65536, 'x');
  while (::write(full.get(), block.data(), block.size()) > 0) {
  }
  ::fcntl(full.get(), F_SETFL, 0);
  IoLoop loop;
  OutputWriter writer(loop.context());
  auto target = std::make_shared<OutputTarget>();
  target->fd = full.get();
  target->drops = std::make_shared<OutputDrops>();
  writer.write(target, "waits", nullptr);
  WriterWatch watch(writer, -1);
  const Instant now = IoLoop::now();
  CHECK(watch.moved_at(now) == now);
  CHECK(watch.moved_at(now + 1s) == now);
  reader.reset();  // ends the write
  REQUIRE(wait_until([&] { return writer.idle(); }));
  CHECK(watch.moved_at(now + 2s) == now + 2s);
}

TEST_CASE_METHOD(ConsoleFixture, "what was meant for a file that is not there is counted too") {
  Screen out;
  Screen err;
  open(config_of(ConsoleMode::kNone, 2, out, err));
  WorkerOutput output = rank_output(0);
  output.stdout_log = folder.path("no/such/folder/log");
  start(shell_request("echo precious"), output);
  WorkerOutput unlogged = rank_output(1);  // its folder could not be made
  unlogged.stdout_unlogged = true;
  unlogged.stdout_on_console = false;
  start(shell_request("echo gold"), unlogged);
  finish(out, err);
  CHECK(lines_of(out.text) == Lines{"precious", "gold"});
  CHECK(console->missing_in_logs() ==
        "log files lack 14 bytes of output that they could not take; it was shown here");
}

}  // namespace
}  // namespace muster::agent
