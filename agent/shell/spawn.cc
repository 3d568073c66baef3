// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/spawn.h"

#include <array>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "agent/shell/exec_error.h"
#include "proto/base/job.h"

// The C library's other name for clone: sanitizers put a wrapper before the first, which does in
// the child what is right after fork only.
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);

namespace muster::agent {
namespace {

// What parent and child share. Filled before clone; the child writes `error` and `step` only.
struct ChildPlan {
  const char* program = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  std::array<int, 3> stdio{};
  bool controlling_terminal = false;
  pid_t parent = 0;
  const StartingState* start = nullptr;
  std::uint32_t changed_limits = 0;  // bit n: limit n differs from the starting one
  volatile int error = 0;
  const char* volatile step = nullptr;
};

#define RAW __attribute__((no_sanitize("address", "thread", "undefined")))

// The child calls the kernel directly: what wraps a libc call (a sanitizer, a profiler) may keep
// books in memory that is still the parent's.
template <typename T>
RAW long word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else if constexpr (std::is_null_pointer_v<T>) {
    return 0;
  } else {
    return static_cast<long>(value);
  }
}

template <typename... Args>
RAW long call(long number, Args... args) {
  return ::syscall(number, word(args)...);
}

struct KernelSigaction {  // as the kernel has it; all but the handler stays zero
  void* handler = nullptr;
  std::array<unsigned long, 7> rest{};
};

[[noreturn]] RAW void fail(ChildPlan* plan, const char* step) {
  plan->error = errno;
  plan->step = step;
  for (;;)
    call(SYS_exit_group, 127);
}

RAW void restore_signals(ChildPlan* plan) {
  KernelSigaction action;
  for (int signal = 1; signal <= 64; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    const bool ignored = (plan->start->ignored >> (signal - 1) & 1U) != 0;
    action.handler = ignored ? reinterpret_cast<void*>(SIG_IGN) : nullptr;
    call(SYS_rt_sigaction, signal, &action, nullptr, 8);
  }
}

RAW void arrange_stdio(ChildPlan* plan) {
  int null = -1;
  for (int target = 0; target < 3; ++target) {
    int& source = plan->stdio[static_cast<std::size_t>(target)];
    if (source < 0) {
      if (null < 0) null = static_cast<int>(call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0));
      if (null < 0) fail(plan, "/dev/null");
      source = null;
    }
    // Out of the way of the dup3 below; close_range takes the copies.
    if (source < 3 && source != target) {
      source = static_cast<int>(call(SYS_fcntl, source, F_DUPFD, 3));
      if (source < 0) fail(plan, "dup");
    }
  }
  for (int target = 0; target < 3; ++target) {
    const int source = plan->stdio[static_cast<std::size_t>(target)];
    const long done =
        source == target ? call(SYS_fcntl, target, F_SETFD, 0) : call(SYS_dup3, source, target, 0);
    if (done < 0) fail(plan, "dup");
  }
  if (call(SYS_close_range, 3U, ~0U, 0) < 0) {
    // Kernels before 5.9. All of ours are close-on-exec anyway; this is for what we inherited.
    const rlim_t limit = plan->start->limits[RLIMIT_NOFILE].rlim_cur;
    const int end = limit > 65536 ? 65536 : static_cast<int>(limit);
    for (int fd = 3; fd < end; ++fd)
      call(SYS_close, fd);
  }
}

RAW int run_child(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  restore_signals(plan);
  call(SYS_setsid);
  if (call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) fail(plan, "prctl");
  // The parent died before the line above took effect: nobody would ever kill us.
  if (call(SYS_getppid) != plan->parent) fail(plan, "the agent died");
  arrange_stdio(plan);
  if (plan->controlling_terminal) call(SYS_ioctl, 1, TIOCSCTTY, 0);
  for (int which = 0; which < RLIM_NLIMITS; ++which) {
    if ((plan->changed_limits >> which & 1U) == 0) continue;
    call(SYS_prlimit64, 0, which, &plan->start->limits[static_cast<std::size_t>(which)], nullptr);
  }
  call(SYS_umask, plan->start->umask);
  call(SYS_rt_sigprocmask, SIG_SETMASK, &plan->start->mask, nullptr, 8);
  call(SYS_execve, plan->program, plan->argv, plan->environment);
  fail(plan, nullptr);
}

std::uint32_t limits_that_differ(const StartingState& start) {
  std::uint32_t changed = 0;
  for (int which = 0; which < RLIM_NLIMITS; ++which) {
    const rlimit& wanted = start.limits[static_cast<std::size_t>(which)];
    rlimit actual{};
    if (::getrlimit(static_cast<__rlimit_resource_t>(which), &actual) != 0) continue;
    if (actual.rlim_cur != wanted.rlim_cur || actual.rlim_max != wanted.rlim_max) {
      changed |= 1U << which;
    }
  }
  return changed;
}

std::string with_limit(int error) {
  const std::string limit = limit_words(error);
  return ::strerror(error) + (limit.empty() ? "" : " (" + limit + ")");
}

std::string explain(const SpawnRequest& request, int error, const char* step) {
  if (step != nullptr)
    return std::string("cannot start a process: ") + step + ": " + with_limit(error);
  return explain_exec(request.program, error);
}

// argv or environment as execve wants it. Pointers into `strings`, which must stay.
std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings)
    pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// clone3(2), less what it may do besides; include/uapi/linux/sched.h.
struct CloneArguments {
  std::uint64_t flags = 0;
  std::uint64_t pidfd = 0;
  std::uint64_t child_tid = 0;
  std::uint64_t parent_tid = 0;
  std::uint64_t exit_signal = 0;
  std::uint64_t stack = 0;
  std::uint64_t stack_size = 0;
  std::uint64_t tls = 0;
  std::uint64_t set_tid = 0;
  std::uint64_t set_tid_size = 0;
  std::uint64_t cgroup = 0;
};
static_assert(sizeof(CloneArguments) == 88);
constexpr std::uint64_t kIntoCgroup = 0x200000000;  // CLONE_INTO_CGROUP

// clone3, which the C library does not offer, as it offers clone: the child runs `run(argument)` on
// the stack of `with` and never returns from here. A process that is moved into a group after it
// was made waits for all processors (7 to 15 ms, measured); one that is born there does not.
// -ENOSYS on other machines.
RAW long clone_into(CloneArguments* with, int (*run)(void*), void* argument) {
#if defined(__x86_64__)
  long result = SYS_clone3;
  asm volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "movq %[argument], %%rdi\n\t"
      "callq *%[run]\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(with), "S"(sizeof *with), [run] "r"(run), [argument] "r"(argument)
      : "rcx", "r11", "cc", "memory");
  return result;
#elif defined(__aarch64__)
  register long number asm("x8") = SYS_clone3;
  register long result asm("x0") = reinterpret_cast<long>(with);
  register long size asm("x1") = sizeof *with;
  asm volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x0, %[argument]\n\t"
      "blr %[run]\n\t"
      "brk #0\n"
      "1:"
      : "+r"(result)
      : "r"(number), "r"(size), [run] "r"(run), [argument] "r"(argument)
      : "cc", "memory");
  return result;
#else
  static_cast<void>(with);
  static_cast<void>(run);
  static_cast<void>(argument);
  return -ENOSYS;
#endif
}

// clone on a stack of its own, with every signal held off: a handler must not run in a child that
// shares our memory. Returns the pid or -errno. `cgroup` is set to -1 where it was not entered.
pid_t clone_child(ChildPlan& plan, int& pidfd, int& cgroup) {
  constexpr std::size_t kStackBytes = 64 * 1024;
  void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return -errno;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  constexpr int kFlags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;
  pid_t pid = -1;
  if (cgroup >= 0) {
    CloneArguments with;
    with.flags = static_cast<unsigned>(kFlags) | kIntoCgroup;
    with.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
    with.exit_signal = SIGCHLD;
    with.stack = reinterpret_cast<std::uint64_t>(stack);
    with.stack_size = kStackBytes;
    with.cgroup = static_cast<std::uint64_t>(cgroup);
    pid = static_cast<pid_t>(clone_into(&with, run_child, &plan));
    if (pid < 0) cgroup = -1;
  }
  if (pid < 0) {
    pid = ::__clone(run_child, static_cast<char*>(stack) + kStackBytes, kFlags | SIGCHLD, &plan,
                    &pidfd);
    if (pid < 0) pid = -errno;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::munmap(stack, kStackBytes);
  return pid;
}

}  // namespace

SpawnResult spawn(const SpawnRequest& request) {
  std::vector<std::string> argv = request.argv;
  std::vector<std::string> environment;
  environment.reserve(request.environment.size());
  for (const auto& [name, value] : request.environment)
    environment.push_back(name + "=" + value);
  const std::vector<char*> argv_pointers = pointers_to(argv);
  const std::vector<char*> environment_pointers = pointers_to(environment);

  ChildPlan plan;
  plan.program = request.program.c_str();
  plan.argv = argv_pointers.data();
  plan.environment = environment_pointers.data();
  plan.stdio = {request.stdio.in, request.stdio.out, request.stdio.err};
  plan.controlling_terminal = request.stdio.controlling_terminal;
  plan.parent = ::getpid();
  plan.start = &request.start;
  plan.changed_limits = limits_that_differ(request.start);

  SpawnResult result;
  int pidfd = -1;
  int cgroup = request.cgroup;
  const pid_t pid = clone_child(plan, pidfd, cgroup);
  if (pid < 0) {
    result.error = -pid;
    result.detail = std::string("cannot start a process: ") + with_limit(-pid);
    return result;
  }
  result.pidfd.reset(pidfd);
  if (plan.error != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    result.pidfd.reset();
    result.error = plan.error;
    result.detail = explain(request, plan.error, plan.step);
    return result;
  }
  result.pid = pid;
  result.in_cgroup = cgroup >= 0;
  return result;
}

}  // namespace muster::agent
