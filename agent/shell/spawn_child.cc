// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/spawn_child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <type_traits>
#include <unistd.h>

// The C library's other name for clone: sanitizers put a wrapper before the first, which does in
// the child what is right after fork only.
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);

namespace muster::agent {
namespace {

// No function of the child's is instrumented, and none that may be is called (of the standard
// library, say): sanitizers keep books in the storage of the parent's thread.
#define RAW __attribute__((no_sanitize("address", "thread", "undefined")))

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

#if defined(__x86_64__)
constexpr bool kParentWaits = false;

RAW long kernel(long number, long a, long b, long c, long d, long e) {
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
               : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
constexpr bool kParentWaits = false;

RAW long kernel(long number, long a, long b, long c, long d, long e) {
  register long which asm("x8") = number;
  register long result asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  register long fifth asm("x4") = e;
  asm volatile("svc #0"
               : "+r"(result)
               : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
               : "memory");
  return result;
}
#else
constexpr bool kParentWaits = true;

RAW long kernel(long number, long a, long b, long c, long d, long e) {
  const long result = ::syscall(number, a, b, c, d, e);
  return result < 0 ? -errno : result;
}
#endif

// -errno, as the kernel has it.
template <typename A = int, typename B = int, typename C = int, typename D = int, typename E = int>
RAW long call(long number, A a = {}, B b = {}, C c = {}, D d = {}, E e = {}) {
  return kernel(number, word(a), word(b), word(c), word(d), word(e));
}

struct KernelSigaction {  // as the kernel has it; all but the handler stays zero
  void* handler;
  unsigned long rest[7];
};
KernelSigaction default_action = {nullptr, {}};
KernelSigaction ignoring_action = {reinterpret_cast<void*>(SIG_IGN), {}};

[[noreturn]] RAW void fail(ChildPlan* plan, long result, const char* step) {
  plan->error = static_cast<int>(-result);
  plan->step = step;
  for (;;)
    call(SYS_exit_group, 127);
}

RAW void restore_signals(ChildPlan* plan) {
  for (int signal = 1; signal <= 64; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    const bool ignored = (plan->start->ignored >> (signal - 1) & 1U) != 0;
    call(SYS_rt_sigaction, signal, ignored ? &ignoring_action : &default_action, nullptr, 8);
  }
}

RAW void close_range(const ChildPlan* plan, unsigned first, unsigned last) {
  if (call(SYS_close_range, first, last, 0) >= 0) return;
  // Kernels before 5.9. All of ours are close-on-exec anyway; this is for what we inherited.
  const rlim_t limit = plan->limits[RLIMIT_NOFILE].rlim_cur;
  const unsigned most = limit > 65536 ? 65536 : static_cast<unsigned>(limit);
  for (unsigned fd = first; fd <= last && fd < most; ++fd)
    call(SYS_close, fd);
}

RAW void arrange_stdio(ChildPlan* plan) {
  int null = -1;
  for (int target = 0; target < 3; ++target) {
    int& source = plan->stdio[target];
    if (source < 0) {
      if (null < 0) null = static_cast<int>(call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0));
      if (null < 0) fail(plan, null, "/dev/null");
      source = null;
    }
    // Out of the way of the dup3 below; close_range takes the copies.
    if (source < 3 && source != target) {
      source = static_cast<int>(call(SYS_fcntl, source, F_DUPFD, 3));
      if (source < 0) fail(plan, source, "dup");
    }
  }
  for (int target = 0; target < 3; ++target) {
    const int source = plan->stdio[target];
    const long done =
        source == target ? call(SYS_fcntl, target, F_SETFD, 0) : call(SYS_dup3, source, target, 0);
    if (done < 0) fail(plan, done, "dup");
  }
  unsigned first = 3;
  for (std::size_t i = 0; i < plan->kept_count; ++i) {
    const unsigned kept = static_cast<unsigned>(plan->kept[i]);
    if (kept > first) close_range(plan, first, kept - 1);
    first = kept + 1;
  }
  close_range(plan, first, ~0U);
}

RAW int run_child(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  restore_signals(plan);
  call(SYS_setsid);
  const long bound = call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (bound < 0) fail(plan, bound, "prctl");
  // The parent died before the line above took effect: nobody would ever kill us.
  if (call(SYS_getppid) != plan->parent) fail(plan, -ESRCH, "the agent died");
  arrange_stdio(plan);
  for (int which = 0; which < RLIM_NLIMITS; ++which) {
    if ((plan->changed_limits >> which & 1U) == 0) continue;
    call(SYS_prlimit64, 0, which, &plan->limits[which], nullptr);
  }
  if (plan->processors != nullptr) {
    const long set = call(SYS_sched_setaffinity, 0, plan->processor_bytes, plan->processors);
    if (set < 0) fail(plan, set, "sched_setaffinity");
  }
  call(SYS_umask, plan->start->umask);
  call(SYS_rt_sigprocmask, SIG_SETMASK, &plan->start->mask, nullptr, 8);
  fail(plan, call(SYS_execve, plan->program, plan->argv, plan->environment), nullptr);
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

}  // namespace

pid_t clone_child(ChildPlan& plan, std::byte* stack, int& pidfd, int& cgroup) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  constexpr int kFlags =
      CLONE_VM | CLONE_PIDFD | CLONE_CHILD_CLEARTID | (kParentWaits ? CLONE_VFORK : 0);
  auto* const running = reinterpret_cast<int*>(&plan.running);
  pid_t pid = -1;
  if (cgroup >= 0) {
    CloneArguments with;
    with.flags = static_cast<unsigned>(kFlags) | kIntoCgroup;
    with.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
    with.child_tid = reinterpret_cast<std::uint64_t>(running);
    with.exit_signal = SIGCHLD;
    with.stack = reinterpret_cast<std::uint64_t>(stack);
    with.stack_size = kChildStackBytes;
    with.cgroup = static_cast<std::uint64_t>(cgroup);
    pid = static_cast<pid_t>(clone_into(&with, run_child, &plan));
    if (pid < 0) cgroup = -1;
  }
  if (pid < 0) {
    pid = ::__clone(run_child, stack + kChildStackBytes, kFlags | SIGCHLD, &plan, &pidfd, nullptr,
                    running);
    if (pid < 0) pid = -errno;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid;
}

}  // namespace muster::agent
