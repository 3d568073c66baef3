// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::runtime::cuda::gpu_check {

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  return {ends[0], ends[1]};
}

Child start_child(const std::vector<std::string>& command, const std::vector<int>& keep,
                  bool group) {
  // Made before the fork: between fork and exec nothing may allocate.
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& part : command)
    arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return {pid};
  if (group) ::setpgid(0, 0);
  for (const int descriptor : keep)
    ::fcntl(descriptor, F_SETFD, 0);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

std::string ChildEnd::text() const {
  if (signal != 0) return "signal " + std::to_string(signal);
  return "exit code " + std::to_string(code);
}

ChildEnd wait_for(Child child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0) {
    if (errno != EINTR) return {};
  }
  if (WIFSIGNALED(status)) return {.code = -1, .signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

bool read_lines(int read, std::chrono::steady_clock::time_point until, std::chrono::seconds quiet,
                const std::function<void(const std::string&)>& line) {
  using Clock = std::chrono::steady_clock;
  std::string pending;
  Clock::time_point last = Clock::now();
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::min(until, last + quiet) - Clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting{read, POLLIN, 0};
    const int wait = static_cast<int>(std::min<std::int64_t>(left.count(), 1000));
    if (::poll(&waiting, 1, wait) <= 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(read, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    pending.append(bytes.data(), static_cast<std::size_t>(count));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos;) {
      const std::string one = pending.substr(0, end);
      pending.erase(0, end + 1);
      last = Clock::now();
      line(one);
    }
  }
}

}  // namespace muster::runtime::cuda::gpu_check
