// SPDX-License-Identifier: Apache-2.0
//
// Each case forks a process that guards an agent, in a session of its own, and looks at it from
// outside. Whatever happens, nothing below it may be left.
#include "agent/shell/guardian.h"

#include <fcntl.h>
#include <functional>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/shell/descendants.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

int rounds() {
  const char* wanted = ::getenv("MUSTER_TEST_ROUNDS");
  return wanted != nullptr ? ::atoi(wanted) : 50;
}

void write_text(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  const UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (::write(file.get(), text.data(), text.size()) < 0) ::_exit(98);
  ::rename(temporary.c_str(), path.c_str());
}

// Starts a guardian with stderr in `folder`/err; returns its pid.
pid_t start_guardian(const TempFolder& folder, const std::function<int(const Guarded&)>& agent) {
  const pid_t guardian = ::fork();
  if (guardian != 0) return guardian;
  ::setsid();
  const int log = ::open(folder.path("err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(log, 2);
  ::close(log);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::_exit(run_guarded(agent));
}

int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return status;
}

enum class Loop { kRuns, kHangs };

// An agent that runs one worker which leaves a daemon; when the guardian is lost it kills all.
int run_agent(const Guarded& guarded, const TempFolder& folder, Loop kind) {
  write_text(folder.path("agent"), std::to_string(::getpid()));
  IoLoop loop;
  Supervisor supervisor(loop.context());
  WorkerRequest request = probe_request({"daemon", folder.path("daemon"), "stay"});
  request.spawn.start = guarded.start;
  const auto worker = supervisor.start(request, {});
  write_text(folder.path("worker"), std::to_string(worker->pid()));
  while (kind == Loop::kHangs)
    ::pause();
  const GuardianWatch watch(loop.context(), guarded.guardian, guarded.page,
                            [&](const std::string&) { loop.stop(); });
  loop.run();
  return 76;
}

struct Family {
  pid_t guardian = 0;
  pid_t agent = 0;
  pid_t worker = 0;
  pid_t daemon = 0;
};

Family start_family(const TempFolder& folder, Loop kind = Loop::kRuns) {
  Family family;
  family.guardian = start_guardian(
      folder, [&](const Guarded& guarded) { return run_agent(guarded, folder, kind); });
  REQUIRE(wait_until([&] {
    family.agent = read_pid(folder.path("agent"));
    family.worker = read_pid(folder.path("worker"));
    family.daemon = read_pid(folder.path("daemon"));
    return family.agent != 0 && family.worker != 0 && family.daemon != 0;
  }));
  REQUIRE(is_running(family.daemon));
  return family;
}

TEST_CASE("the guardian ends with the agent's exit code") {
  for (const int code : {0, 3, 143, 255}) {
    const TempFolder folder;
    const int status = wait_for(start_guardian(folder, [&](const Guarded&) { return code; }));
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == code);
    CHECK(read_text(folder.path("err")).empty());
  }
}

TEST_CASE("an agent that is killed takes everything with it, daemons too") {
  for (int round = 0; round < rounds(); ++round) {
    const TempFolder folder;
    const Family family = start_family(folder);
    ::kill(family.agent, SIGKILL);
    const int status = wait_for(family.guardian);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 70);
    CHECK_FALSE(is_running(family.worker));
    CHECK_FALSE(is_running(family.daemon));
    CHECK(read_text(folder.path("err")) ==
          "muster: the agent (pid " + std::to_string(family.agent) +
              ") was killed by SIGKILL; its workers were stopped\n");
  }
}

TEST_CASE("a guardian that is killed takes everything with it, daemons too") {
  // What the agent loses comes to us then: we are the next subreaper.
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  for (int round = 0; round < rounds(); ++round) {
    const TempFolder folder;
    const Family family = start_family(folder);
    ::kill(family.guardian, SIGKILL);
    CHECK(WTERMSIG(wait_for(family.guardian)) == SIGKILL);
    CHECK(WEXITSTATUS(wait_for(family.agent)) == 76);
    CHECK_FALSE(is_running(family.worker));
    CHECK_FALSE(is_running(family.daemon));
  }
}

TEST_CASE("a stopped agent does not keep its workers when the guardian ends it") {
  const TempFolder folder;
  const Family family = start_family(folder);
  ::kill(family.agent, SIGSTOP);
  ::kill(family.daemon, SIGSTOP);
  ::kill(family.agent, SIGKILL);
  CHECK(WEXITSTATUS(wait_for(family.guardian)) == 70);
  CHECK_FALSE(is_running(family.worker));
  CHECK_FALSE(is_running(family.daemon));
}

TEST_CASE("an agent that hangs has its thread kill everything when the guardian is killed") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  const TempFolder folder;
  const Family family = start_family(folder, Loop::kHangs);
  ::kill(family.guardian, SIGKILL);
  CHECK(WTERMSIG(wait_for(family.guardian)) == SIGKILL);
  CHECK(WEXITSTATUS(wait_for(family.agent)) == 70);
  CHECK_FALSE(is_running(family.worker));
  CHECK_FALSE(is_running(family.daemon));
  CHECK(read_text(folder.path("err")) ==
        "muster: the guardian of this agent is gone, and the agent hangs; its workers were "
        "killed\n");
}

TEST_CASE("an agent that hangs is ended by the third signal, with everything below it") {
  const TempFolder folder;
  const Family family = start_family(folder, Loop::kHangs);
  int status = 0;
  const auto ended = [&] { return ::waitpid(family.guardian, &status, WNOHANG) != 0; };
  // Again and again: those that come close together are one.
  REQUIRE(wait_until([&] {
    ::kill(family.guardian, SIGTERM);
    return ended();
  }));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
  CHECK_FALSE(is_running(family.worker));
  CHECK_FALSE(is_running(family.daemon));
  CHECK(read_text(folder.path("err")) ==
        "muster: the agent (pid " + std::to_string(family.agent) +
            ") did not act on SIGTERM: it hangs, in a file system perhaps; its workers were "
            "killed\n");
}

TEST_CASE("what an agent leaves behind at a normal end is cleared away") {
  const TempFolder folder;
  const pid_t guardian = start_guardian(folder, [&](const Guarded&) {
    if (::fork() == 0) {
      ::setsid();
      ::execl(PROBE, "probe", "pause", nullptr);
      ::_exit(1);
    }
    return 5;
  });
  const int status = wait_for(guardian);
  CHECK(WEXITSTATUS(status) == 5);
  CHECK(descendants_of(::getpid()).empty());
}

// Exits with 100 + the first signal it gets.
int wait_for_signal(const Guarded& guarded, const TempFolder& folder) {
  IoLoop loop;
  int code = 0;
  const SignalWatch watch(loop.context(), {SIGTERM, SIGINT, SIGUSR1, SIGCONT},
                          [&](const SignalInfo& info) {
                            code = 100 + info.signal;
                            loop.stop();
                          });
  const GuardianWatch lost(loop.context(), guarded.guardian, guarded.page,
                           [&](const std::string&) { loop.stop(); });
  write_text(folder.path("ready"), "1");
  loop.run();
  return code;
}

TEST_CASE("signals that people send to the guardian reach the agent") {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGCONT}) {
    const TempFolder folder;
    const pid_t guardian =
        start_guardian(folder, [&](const Guarded& g) { return wait_for_signal(g, folder); });
    // From the very first moment, not only when the agent is ready.
    if (signal != SIGINT) REQUIRE(wait_until([&] { return read_pid(folder.path("ready")) != 0; }));
    if (signal == SIGINT) REQUIRE(wait_until([&] { return !children_of(guardian).empty(); }));
    ::kill(guardian, signal);
    CHECK(WEXITSTATUS(wait_for(guardian)) == 100 + signal);
  }
}

TEST_CASE("guardian and agent are one process group") {
  const TempFolder folder;
  const pid_t guardian = start_guardian(folder, [&](const Guarded& guarded) {
    return ::getpgrp() == guarded.guardian && ::getppid() == guarded.guardian ? 0 : 1;
  });
  CHECK(WEXITSTATUS(wait_for(guardian)) == 0);
}

TEST_CASE("interrupts that were ignored at start stay ignored, TERM does not") {
  const TempFolder folder;
  const pid_t guardian = ::fork();
  if (guardian == 0) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGTERM})
      ::signal(signal, SIG_IGN);
    ::_exit(run_guarded([&](const Guarded& guarded) {
      const bool right = stop_signals(guarded.start) == std::vector<int>{SIGTERM};
      return right ? wait_for_signal(guarded, folder) : 1;
    }));
  }
  REQUIRE(wait_until([&] { return read_pid(folder.path("ready")) != 0; }));
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGTERM})
    ::kill(guardian, signal);
  CHECK(WEXITSTATUS(wait_for(guardian)) == 100 + SIGTERM);
}

TEST_CASE("children from before the guardian are left alone") {
  const TempFolder folder;
  const pid_t guardian = ::fork();
  if (guardian == 0) {
    const pid_t sidecar = ::fork();
    if (sidecar == 0) {
      ::execl(PROBE, "probe", "pause", nullptr);
      ::_exit(1);
    }
    write_text(folder.path("sidecar"), std::to_string(sidecar));
    ::_exit(run_guarded([](const Guarded&) { return 0; }));
  }
  CHECK(WEXITSTATUS(wait_for(guardian)) == 0);
  const pid_t sidecar = read_pid(folder.path("sidecar"));
  CHECK(is_running(sidecar));
  ::kill(sidecar, SIGKILL);
}

TEST_CASE("as process 1 it reaps strangers and is deaf to nothing") {
  const TempFolder folder;
  const pid_t outer = ::fork();
  if (outer == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(42);  // not root: nothing to see
    const pid_t first = start_guardian(folder, [&](const Guarded& guarded) {
      if (guarded.guardian != 1) return 1;
      // A grandchild whose parent ends goes to us first; from a stranger it goes to process 1.
      return wait_for_signal(guarded, folder);
    });
    while (::access(folder.path("ready").c_str(), F_OK) != 0)
      ::usleep(1000);
    ::kill(first, SIGTERM);
    int status = 0;
    ::waitpid(first, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  const int code = WEXITSTATUS(wait_for(outer));
  if (code == 42) {
    WARN("no right to make a pid namespace: process 1 not tested");
  } else {
    CHECK(code == 100 + SIGTERM);
  }
}

}  // namespace
}  // namespace muster::agent
