// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stack_capture.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/stack_snapshot.h"
#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

template <typename Condition>
bool eventually(const Condition& condition) {
  for (const Instant end = IoLoop::now() + 30s; IoLoop::now() < end; ::usleep(2000)) {
    if (condition()) return true;
  }
  return false;
}

// A process of the test, killed and reaped at the end.
class Child {
 public:
  explicit Child(const std::vector<std::string>& words) : pid_(::fork()) {
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (const std::string& word : words)
        argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT: execvp takes them so
      argv.push_back(nullptr);
      ::setsid();
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    REQUIRE(pid_ > 0);
    // It is the program, not this one's copy: else its name would be ours.
    REQUIRE(eventually([&] {
      const std::string command = command_of(pid_);
      return command.starts_with(words[0]) || state() == 'Z';
    }));
  }
  ~Child() {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  char state() const {
    const auto process = read_process(pid_);
    return process ? process->state : '?';
  }

 private:
  pid_t pid_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Fixture {
  muster::testing::TempDir dir;
  IoLoop loop;

  std::string file(std::uint32_t rank) const { return dir.path() + "/" + std::to_string(rank); }
  // A program that stands for gdb, or py-spy.
  void program(const char* name, const std::string& script) const {
    const std::string path = dir.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << script;
    fs::permissions(path, fs::perms::owner_all);
  }
  std::vector<CapturedStacks> capture(std::vector<StackTarget> targets, Duration limit = 30s) {
    StackCapture stacks(loop.context(), dir.path() + ":/nowhere");
    std::optional<std::vector<CapturedStacks>> found;
    stacks.start(std::move(targets), limit, [&](auto captured) { found = std::move(captured); });
    for (const Instant end = IoLoop::now() + 60s; !found && IoLoop::now() < end;)
      loop.context().run_one_for(std::chrono::milliseconds(50));
    loop.context().restart();
    REQUIRE(found);
    return *found;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "what the kernel says of a process, its threads and its children") {
  const Child child({"sh", "-c", "sleep 1000 & wait"});
  REQUIRE(eventually([&] { return processes_of(child.pid()).size() == 2; }));
  const auto captured = capture({{0, 4, child.pid(), file(4)}, {1, 5, child.pid(), ""}});
  REQUIRE(captured.size() == 2);
  CHECK(captured[0].path == file(4));
  CHECK_FALSE(captured[0].stopped);
  CHECK(captured[1].path.empty());
  const std::string text = text_of(file(4));
  CHECK(text.starts_with("Stacks of rank 4, pid " + std::to_string(child.pid()) + ", at 20"));
  CHECK(text.find("== process " + std::to_string(child.pid()) + " (sh), 1 thread\n") !=
        std::string::npos);
  CHECK(text.find(" (sleep), 1 thread\n") != std::string::npos);
  CHECK(text.find("state S (sleeping)") != std::string::npos);
  CHECK(text.find("neither py-spy nor gdb is in the PATH") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "a stopped process is known, and stays stopped") {
  program("gdb", "echo \"words: $*\"\n");
  const Child child({"sleep", "1000"});
  ::kill(child.pid(), SIGSTOP);
  REQUIRE(eventually([&] { return child.state() == 'T'; }));
  const auto captured = capture({{0, 0, child.pid(), file(0)}});
  CHECK(captured[0].stopped);
  CHECK(child.state() == 'T');
  const std::string text = text_of(file(0));
  CHECK(text.find("state T (stopped by a signal)") != std::string::npos);
  CHECK(text.find("words: -nx -batch -p " + std::to_string(child.pid()) + " -ex thread") !=
        std::string::npos);
}

TEST_CASE_METHOD(Fixture, "a tool that hangs is stopped at the limit, the rest stays") {
  program("gdb", "echo begins; exec sleep 1000\n");
  const Child one({"sleep", "1000"});
  const Child two({"sleep", "1000"});
  const Child three({"sleep", "1000"});
  const auto captured = capture(
      {{0, 0, one.pid(), file(0)}, {1, 1, two.pid(), file(1)}, {2, 2, three.pid(), file(2)}}, 3s);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    CHECK(captured[rank].path == file(rank));
    CHECK(text_of(file(rank)).find("(sleep), 1 thread\n") != std::string::npos);
  }
  CHECK(text_of(file(0)).find("begins\n(it took too long and was stopped)\n") != std::string::npos);
  CHECK(text_of(file(2)).find("no time was left for its stacks") != std::string::npos);
  CHECK(children_of(::getpid()).size() == 3);  // those of the test
}

TEST_CASE_METHOD(Fixture, "a process that is gone, and a file that cannot be made") {
  pid_t gone = 0;
  {
    const Child child({"true"});
    gone = child.pid();
  }
  const Child child({"sleep", "1000"});
  const auto captured = capture({{0, 0, gone, file(0)}, {1, 1, child.pid(), "/nowhere/stacks"}});
  CHECK(captured[0].path.empty());
  CHECK(captured[1].path.empty());
  CHECK_FALSE(fs::exists(file(0)));
}

TEST_CASE_METHOD(Fixture, "one that is given up leaves no process and answers nothing") {
  program("gdb", "echo $$ > " + dir.path() + "/started; exec sleep 1000\n");
  const Child child({"sleep", "1000"});
  bool answered = false;
  {
    StackCapture stacks(loop.context(), dir.path());
    stacks.start({{0, 0, child.pid(), file(0)}}, 60s, [&](auto) { answered = true; });
    REQUIRE(eventually([&] { return !text_of(dir.path() + "/started").empty(); }));
  }
  CHECK(eventually([&] { return children_of(::getpid()).size() == 1; }));
  loop.context().poll();
  CHECK_FALSE(answered);
}

TEST_CASE_METHOD(Fixture, "a real debugger leaves a stopped process as it was") {
  if (::access("/usr/bin/gdb", X_OK) != 0) {
    WARN("skipped: gdb is not installed");
    return;
  }
  fs::create_symlink("/usr/bin/gdb", dir.path() + "/gdb");
  const Child child({"sleep", "1000"});
  ::kill(child.pid(), SIGSTOP);
  REQUIRE(eventually([&] { return child.state() == 'T'; }));
  capture({{0, 0, child.pid(), file(0)}});
  CHECK(child.state() == 'T');
  CHECK(text_of(file(0)).find("\n#0 ") != std::string::npos);
}

}  // namespace muster::agent
