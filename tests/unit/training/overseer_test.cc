// SPDX-License-Identifier: Apache-2.0
//
// Each case is a child process: the overseer owns its process's signals, and ends it.
#include "worker_runtime/train/overseer.h"

#include <chrono>
#include <functional>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/unit/training/scratch.h"

namespace muster::runtime {
namespace {

using namespace std::chrono_literals;
using test::Scratch;

// A child that overseas itself and then does `body`; its exit code is the overseer's, or the
// body's. Tells the parent through a pipe when it is ready for signals.
class Child {
 public:
  Child(ProcessOverseer::Options options, const std::function<int(ProcessOverseer&)>& body) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      options.end = [](int code, const std::string&) { ::_exit(code); };
      options.stuck_after = 100ms;
      ProcessOverseer overseer(options);
      const Ready tell{ready[1]};
      ready_ = &tell;
      ::_exit(body(overseer));
    }
    ::close(ready[1]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // In the child: "now I am where the case wants me".
  static void ready() { (void)!::write(ready_->fd, "r", 1); }

  void signal(int number) const { ::kill(pid_, number); }
  int exit_code() {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  struct Ready {
    int fd;
  };
  static inline const Ready* ready_ = nullptr;
  pid_t pid_ = -1;
};

int wait_for_stop(ProcessOverseer& overseer) {
  Child::ready();
  while (!overseer.stop_requested())
    ::usleep(1000);
  return 42;
}

int sit_in_collective(ProcessOverseer& overseer) {
  overseer.collective_begins();
  Child::ready();
  for (;;)
    ::pause();
}

TEST_CASE("alone, a stop signal asks for an orderly end, a second one ends at once") {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Child child({}, wait_for_stop);
    child.signal(number);
    CHECK(child.exit_code() == 42);
  }
  Child stubborn({}, [](ProcessOverseer& overseer) {
    Child::ready();
    while (!overseer.stop_requested())
      ::usleep(1000);
    ::kill(::getpid(), SIGINT);
    for (;;)
      ::pause();
    return 0;
  });
  stubborn.signal(SIGTERM);
  CHECK(stubborn.exit_code() == 128 + SIGINT);
}

TEST_CASE("launched, a signal without the stop file ends at once with 81") {
  const Scratch dir;
  for (const std::string& file : {std::string(), dir / "stop"}) {
    Child child({.stop_file = file, .launched = true}, wait_for_stop);
    child.signal(SIGTERM);
    CHECK(child.exit_code() == kExitPeerLost);
  }
}

TEST_CASE("launched, the stop file asks for an orderly end, with or without a signal") {
  const Scratch dir;
  Child told({.stop_file = dir.write("stop", ""), .launched = true}, wait_for_stop);
  CHECK(told.exit_code() == 42);
  Child signalled({.stop_file = dir / "stop", .launched = true}, wait_for_stop);
  signalled.signal(SIGTERM);
  CHECK(signalled.exit_code() == 42);
}

TEST_CASE("asked to stop, a rank whose peers never come ends with 81") {
  const Scratch dir;
  Child child({.stop_file = dir.write("stop", ""), .launched = true}, sit_in_collective);
  child.signal(SIGTERM);
  CHECK(child.exit_code() == kExitPeerLost);
}

TEST_CASE("a rank that waits in a collective without being asked to stop waits on") {
  Child child({.launched = true}, [](ProcessOverseer& overseer) {
    overseer.collective_begins();
    Child::ready();
    ::usleep(400'000);  // four times what would be too long after a signal
    overseer.collective_ends();
    return 42;
  });
  CHECK(child.exit_code() == 42);
}

TEST_CASE("while rank 0 saves, a rank that was asked to stop waits for it") {
  const Scratch dir;
  Child child({.stop_file = dir.write("stop", ""), .launched = true},
              [](ProcessOverseer& overseer) {
                overseer.awaits_storage();
                overseer.collective_begins();
                ::kill(::getpid(), SIGTERM);
                Child::ready();
                ::usleep(400'000);
                overseer.collective_ends();  // the save is over: from here on as ever
                overseer.collective_begins();
                for (;;)
                  ::pause();
                return 0;
              });
  const auto began = std::chrono::steady_clock::now();
  CHECK(child.exit_code() == kExitPeerLost);
  CHECK(std::chrono::steady_clock::now() - began > 400ms);
}

TEST_CASE("peers are given up once a stop was asked for and they have had their time") {
  const Scratch dir;
  Child child({.stop_file = dir.write("stop", ""), .launched = true},
              [](ProcessOverseer& overseer) {
                Child::ready();
                overseer.collective_begins();
                overseer.collective_ends();
                ::usleep(100'000);  // what a step computes
                overseer.collective_begins();
                overseer.collective_ends();
                if (overseer.stop_is_due()) return 1;
                const auto asked = std::chrono::steady_clock::now();
                ::kill(::getpid(), SIGTERM);
                while (!overseer.stop_is_due())
                  ::usleep(1000);
                if (std::chrono::steady_clock::now() - asked < 200ms) return 2;
                overseer.finishing();
                return overseer.stop_is_due() ? 3 : 42;
              });
  CHECK(child.exit_code() == 42);
}

TEST_CASE("once all agreed to end, nobody is hurried") {
  const Scratch dir;
  Child child({.stop_file = dir.write("stop", ""), .launched = true},
              [](ProcessOverseer& overseer) {
                overseer.finishing();
                overseer.collective_begins();
                ::kill(::getpid(), SIGTERM);
                Child::ready();
                ::usleep(400'000);
                return 42;
              });
  CHECK(child.exit_code() == 42);
}

TEST_CASE("storage that does not answer ends with 84") {
  Child child({.storage_timeout = 100ms}, [](ProcessOverseer& overseer) {
    overseer.storage_begins();
    Child::ready();
    for (;;)
      ::pause();
    return 0;
  });
  CHECK(child.exit_code() == kExitStorage);
}

TEST_CASE("a signal that was ignored at the start stays ignored") {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  {
    Child deaf({}, [](ProcessOverseer& overseer) {
      Child::ready();
      for (int i = 0; i < 300 && !overseer.stop_requested(); ++i)
        ::usleep(1000);
      return overseer.stop_requested() ? 1 : 42;
    });
    deaf.signal(SIGHUP);
    CHECK(deaf.exit_code() == 42);
  }
  ::signal(SIGHUP, before);
}

TEST_CASE("a retired overseer ends nothing") {
  Child child({.launched = true}, [](ProcessOverseer& overseer) {
    overseer.retire();
    ::kill(::getpid(), SIGTERM);
    Child::ready();
    ::usleep(200'000);
    return 42;
  });
  CHECK(child.exit_code() == 42);
}

}  // namespace
}  // namespace muster::runtime
