// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stack_tool.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace muster::agent {
namespace {

constexpr std::size_t kMostOutput = 1024 * 1024;
constexpr int kEndMs = 100;

bool lives(int pidfd) {
  pollfd ready{pidfd, POLLIN, 0};
  return pidfd >= 0 && ::poll(&ready, 1, 0) == 0;
}

// posix_spawn's two helpers: no signal blocked or ignored, a group of its own, output to `out`.
class SpawnPlan {
 public:
  explicit SpawnPlan(int out) {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out, 1);
    ::posix_spawn_file_actions_adddup2(&actions, out, 2);
    ::posix_spawnattr_init(&attributes);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

void ToolGroups::add(pid_t group, int pidfd) {
  const std::lock_guard lock(guard_);
  running_[group] = pidfd;
}

void ToolGroups::remove(pid_t group) {
  const std::lock_guard lock(guard_);
  running_.erase(group);
}

void ToolGroups::kill_all() {
  const std::lock_guard lock(guard_);
  for (const auto& [group, pidfd] : running_) {
    // The number is its own as long as it lives.
    if (lives(pidfd)) ::kill(-group, SIGKILL);
  }
}

Tool::Tool(ToolGroups& groups, std::vector<std::string> words) : groups_(groups) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    output_ = words[0] + ": " + std::strerror(errno) + "\n";
    return;
  }
  pipe_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  start(std::move(words), theirs.get());
}

Tool::~Tool() {
  kill();
}

void Tool::start(std::vector<std::string> words, int out) {
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  const SpawnPlan plan(out);
  const int error =
      ::posix_spawn(&pid_, argv[0], &plan.actions, &plan.attributes, argv.data(), environ);
  if (error != 0) {
    pid_ = -1;
    output_ = words[0] + ": " + std::strerror(error) + "\n";
    return;
  }
  // Fails where it is gone and reaped by others; then the pipe alone tells.
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (pidfd_.valid()) groups_.add(pid_, pidfd_.get());
}

bool Tool::goes_on() {
  if (pid_ < 0) return false;
  const bool alive = lives(pidfd_.get());
  read_output();
  if (output_.size() >= kMostOutput) {
    kill();
    output_ += "\n(more was left out)\n";
    return false;
  }
  if (alive || (!pidfd_.valid() && pipe_.valid())) return true;
  kill();
  return false;
}

void Tool::kill() {
  if (pid_ < 0) return;
  // A number that nobody has any more may be another's soon. Who lives has it, or who still has the
  // pipe.
  killed_ = lives(pidfd_.get());
  if (killed_ || pipe_.valid()) ::kill(-pid_, SIGKILL);
  pollfd ready{pidfd_.get(), POLLIN, 0};
  if (pidfd_.valid()) ::poll(&ready, 1, kEndMs);
  read_output();
  pipe_.reset();
  forget();
}

void Tool::read_output() {
  char buffer[16 * 1024];
  while (pipe_.valid() && output_.size() < kMostOutput) {
    const ssize_t count = ::read(pipe_.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return pipe_.reset();
    output_.append(buffer, static_cast<std::size_t>(count));
  }
}

// By its descriptor: whoever reaps orphans here may have been faster, and the number be another's.
void Tool::forget() {
  if (pidfd_.valid()) {
    siginfo_t info{};
    ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG);
    groups_.remove(pid_);
    pidfd_.reset();
  }
  pid_ = -1;
}

}  // namespace muster::agent
