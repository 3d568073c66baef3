// SPDX-License-Identifier: Apache-2.0
//
// The child of a spawn from clone to exec. It shares all memory with its parent, which goes on
// meanwhile, and its thread's storage too, errno included: so it makes nothing but plain calls of
// the kernel, by instructions of its own, and runs no handler. Where those instructions are not
// known (neither x86-64 nor arm64) the parent waits instead, as after vfork.
//
// Thread rule: clone_child in the parent, run by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <sys/resource.h>
#include <sys/types.h>

#include "agent/shell/signals.h"

namespace muster::agent {

// What parent and child share; stays until `running` is 0. Filled before clone_child; the child
// writes `error` and `step` only.
struct ChildPlan {
  const char* program = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  int stdio[3] = {-1, -1, -1};
  pid_t parent = 0;
  const StartingState* start = nullptr;
  const rlimit* limits = nullptr;  // start->limits
  const int* kept = nullptr;       // descriptors above 2 that stay open, ascending
  std::size_t kept_count = 0;
  const unsigned long* processors = nullptr;  // bits, as sched_setaffinity takes them; null: as we
  std::size_t processor_bytes = 0;
  std::uint32_t changed_limits = 0;     // bit n: limit n differs from the starting one
  volatile int error = 0;               // errno of what failed
  const char* volatile step = nullptr;  // … its name; nullptr: exec itself
  // Made 0, and woken, by the kernel when the child leaves our memory, by exec or by its end
  // (CLONE_CHILD_CLEARTID).
  std::atomic<int> running{1};
};

inline constexpr std::size_t kChildStackBytes = 16 * 1024;

// Returns the pid or -errno. `stack`: kChildStackBytes, as long as the plan. `cgroup`: the folder
// of a control group to start in, or -1; made -1 where it was not entered. Every signal is held
// off in the child until just before exec: a handler must not run there.
pid_t clone_child(ChildPlan& plan, std::byte* stack, int& pidfd, int& cgroup);

}  // namespace muster::agent
