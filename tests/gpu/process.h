// SPDX-License-Identifier: Apache-2.0
//
// Children of gpu-check: this program again, with other arguments.
//
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace muster::runtime::cuda::gpu_check {

// Both ends close on exec; -1, -1: the system has none left.
struct Pipe {
  int read = -1;
  int write = -1;
};
Pipe make_pipe();

struct Child {
  pid_t pid = -1;  // -1: it could not be started
};
// `keep`: descriptors that it inherits. `group`: a process group of its own.
Child start_child(const std::vector<std::string>& command, const std::vector<int>& keep,
                  bool group);

// Waits. "exit code 0", "signal 9".
struct ChildEnd {
  int code = -1;  // -1: a signal's
  int signal = 0;
  std::string text() const;
};
ChildEnd wait_for(Child child);

// Complete lines from `read` to `line`, until all writers are gone (true), or the time is, or none
// came for as long as `quiet` (false).
bool read_lines(int read, std::chrono::steady_clock::time_point until, std::chrono::seconds quiet,
                const std::function<void(const std::string&)>& line);

}  // namespace muster::runtime::cuda::gpu_check
