// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stack_capture.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
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

// A process of the test, killed and reaped at the end.
class Child {
 public:
  // Runs the program when this is over: the pipe closes on exec.
  explicit Child(const std::vector<std::string>& words) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    pid_ = ::fork();
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
    ::close(ends[1]);
    char none = 0;
    CHECK(::read(ends[0], &none, 1) == 0);
    ::close(ends[0]);
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
  pid_t pid_ = -1;
};

template <typename Condition>
bool eventually(const Condition& condition) {
  for (const Instant end = IoLoop::now() + 30s; IoLoop::now() < end; ::usleep(2000)) {
    if (condition()) return true;
  }
  return false;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string states_of(pid_t pid) {
  std::string states;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    const std::string stat = text_of(thread.path() / "stat");
    states += stat[stat.rfind(')') + 2];
  }
  return states;
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
  REQUIRE(eventually([&] {
    const auto found = processes_of(child.pid());
    return found.size() == 2 && text_of("/proc/" + std::to_string(found[1]) + "/comm") == "sleep\n";
  }));
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
      {{0, 0, one.pid(), file(0)}, {1, 1, two.pid(), file(1)}, {2, 2, three.pid(), file(2)}}, 1s);
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
  // Let go of, it runs for a moment on its way back.
  CHECK(eventually([&] { return child.state() == 'T'; }));
  CHECK(text_of(file(0)).find("\n#0 ") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "one that spins, and a name that would draw on a terminal") {
  const Child spins({"sh", "-c", "while :; do :; done"});
  const Child drawn({"sh", "-c", "printf 'a\\033[31mb' > /proc/$$/comm; while :; do :; done"});
  REQUIRE(eventually([&] {
    return text_of("/proc/" + std::to_string(drawn.pid()) + "/comm").starts_with("a\x1b");
  }));
  capture({{0, 0, spins.pid(), file(0)}, {1, 1, drawn.pid(), file(1)}});
  CHECK(text_of(file(0)).find("state R (running)") != std::string::npos);
  CHECK(text_of(file(1)).find("(a?[31mb)") != std::string::npos);
  CHECK(text_of(file(1)).find('\x1b') == std::string::npos);
}

TEST_CASE_METHOD(Fixture, "py-spy is for Python, gdb for the rest") {
  if (::access("/usr/bin/python3", X_OK) != 0) {
    WARN("skipped: no Python");
    return;
  }
  program("py-spy", "echo py-spy saw $*\n");
  program("gdb", "echo gdb saw $*\n");
  const Child python({"/usr/bin/python3", "-c", "import time; time.sleep(1000)"});
  const Child other({"sleep", "1000"});
  REQUIRE(eventually([&] { return is_python(python.pid()) && !is_python(other.pid()); }));
  capture({{0, 0, python.pid(), file(0)}, {1, 1, other.pid(), file(1)}});
  CHECK(text_of(file(0)).find("\npy-spy saw dump --pid " + std::to_string(python.pid())) !=
        std::string::npos);
  CHECK(text_of(file(1)).find("\ngdb saw ") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "the first process of each worker is looked at before any other") {
  const std::vector<std::string> words{"sh", "-c", "for i in 1 2 3 4; do sleep 1000 & done; wait"};
  const Child one(words);
  const Child two(words);
  const Child last({"sleep", "1000"});
  REQUIRE(eventually(
      [&] { return processes_of(one.pid()).size() == 5 && processes_of(two.pid()).size() == 5; }));
  // Of any other process it hangs, and the two that may run at once are taken.
  program("gdb", "case \"$4\" in " + std::to_string(one.pid()) + "|" + std::to_string(two.pid()) +
                     "|" + std::to_string(last.pid()) +
                     ") echo looked;; *) exec sleep 1000;; esac\n");
  StackCapture stacks(loop.context(), dir.path());
  stacks.start(
      {{0, 0, one.pid(), file(0)}, {1, 1, two.pid(), file(1)}, {2, 2, last.pid(), file(2)}}, 60s,
      [](auto) {});
  CHECK(eventually([&] { return text_of(file(2)).find("\nlooked\n") != std::string::npos; }));
}

TEST_CASE_METHOD(Fixture, "what a tool writes has a limit") {
  program("gdb", "exec yes 01234567890123456789\n");
  const Child child({"sleep", "1000"});
  const auto captured = capture({{0, 0, child.pid(), file(0)}});
  CHECK(captured[0].path == file(0));
  CHECK(text_of(file(0)).ends_with("(more was left out)\n"));
  CHECK(fs::file_size(file(0)) < 1200 * 1024);
  CHECK(children_of(::getpid()).size() == 1);
}

TEST_CASE_METHOD(Fixture, "no process is left when the object is gone, not a moment later") {
  program("gdb", "sleep 1000 & echo $! > " + dir.path() + "/below; echo $$ > " + dir.path() +
                     "/started; wait\n");
  const Child child({"sleep", "1000"});
  {
    StackCapture stacks(loop.context(), dir.path());
    stacks.start({{0, 0, child.pid(), file(0)}}, 60s, [](auto) {});
    REQUIRE(eventually([&] { return !text_of(dir.path() + "/started").empty(); }));
  }
  CHECK(children_of(::getpid()).size() == 1);
  const pid_t below = std::stoi(text_of(dir.path() + "/below"));
  CHECK(eventually([&] {
    const auto process = read_process(below);
    return !process || process->state == 'Z';
  }));
}

TEST_CASE_METHOD(Fixture, "a tool that ends before what it has started") {
  program("gdb", "sleep 1000 & echo $! > " + dir.path() + "/below; echo ends\n");
  const Child child({"sleep", "1000"});
  capture({{0, 0, child.pid(), file(0)}});
  CHECK(text_of(file(0)).ends_with("\nends\n"));
  const pid_t below = std::stoi(text_of(dir.path() + "/below"));
  CHECK(eventually([&] {
    const auto process = read_process(below);
    return !process || process->state == 'Z';
  }));
}

TEST_CASE_METHOD(Fixture, "a file that is a link or a pipe holds nobody up") {
  const Child child({"sleep", "1000"});
  REQUIRE(::mkfifo(file(0).c_str(), 0600) == 0);
  fs::create_symlink(dir.path() + "/elsewhere", file(1));
  const auto captured = capture(
      {{0, 0, child.pid(), file(0)}, {1, 1, child.pid(), file(1)}, {2, 2, child.pid(), file(2)}});
  CHECK(captured[0].path.empty());
  CHECK(captured[1].path.empty());
  CHECK(captured[2].path == file(2));
  CHECK_FALSE(fs::exists(dir.path() + "/elsewhere"));
}

TEST_CASE_METHOD(Fixture, "without a thread there are no stacks, but an answer") {
  const pid_t other = ::fork();
  if (other == 0) {
    // Of a user that may have no more processes; root may always.
    const rlimit none{0, 0};
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    ::setrlimit(RLIMIT_NPROC, &none);
    boost::asio::io_context io;
    bool answered = false;
    StackCapture stacks(io, "/nowhere");
    stacks.start({{0, 0, ::getpid(), ""}}, 60s, [&](auto) { answered = true; });
    io.run_one_for(std::chrono::seconds(30));
    ::_exit(answered ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(other, &status, 0) == other);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
    WARN("skipped: not root");
    return;
  }
  CHECK(status == 0);
}

TEST_CASE_METHOD(Fixture, "a real debugger that is killed in the midst lets go") {
  if (::access("/usr/bin/gdb", X_OK) != 0 || ::access("/usr/bin/python3", X_OK) != 0) {
    WARN("skipped: no gdb or no Python");
    return;
  }
  const bool stopped = GENERATE(false, true);
  const Child child(
      {"/usr/bin/python3", "-c",
       "import threading, time\n"
       "for i in range(7): threading.Thread(target=time.sleep, args=(1e4,)).start()"});
  const std::string before(8, stopped ? 'T' : 'S');
  if (stopped) {
    REQUIRE(eventually([&] { return states_of(child.pid()).size() == 8; }));
    ::kill(child.pid(), SIGSTOP);
  }
  REQUIRE(eventually([&] { return states_of(child.pid()) == before; }));
  {
    StackCapture stacks(loop.context(), "/usr/bin");
    stacks.start({{0, 0, child.pid(), file(0)}}, 60s, [](auto) {});
    // Until it has attached.
    REQUIRE(eventually([&] { return states_of(child.pid()).find('t') != std::string::npos; }));
  }
  CHECK(eventually([&] { return states_of(child.pid()) == before; }));
}

}  // namespace muster::agent
