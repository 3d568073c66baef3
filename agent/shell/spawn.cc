// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/spawn.h"

#include <array>
#include <atomic>
#include <chrono>
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utility>

#include "agent/shell/exec_error.h"
#include "agent/shell/spawn_child.h"
#include "proto/base/job.h"

namespace muster::agent {
namespace {

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

std::string explain(const std::string& program, int error, const char* step) {
  if (step != nullptr)
    return std::string("cannot start a process: ") + step + ": " + with_limit(error);
  return explain_exec(program, error);
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

std::vector<unsigned long> processor_bits(const std::vector<int>& processors) {
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> bits;
  for (const int processor : processors) {
    const std::size_t word = static_cast<std::size_t>(processor) / kBits;
    if (bits.size() <= word) bits.resize(word + 1);
    bits[word] |= 1UL << (static_cast<std::size_t>(processor) % kBits);
  }
  return bits;
}

}  // namespace

struct Spawn::State {
  std::string program;
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  StartingState start;
  std::vector<unsigned long> processors;
  std::vector<char*> argv_pointers;
  std::vector<char*> environment_pointers;
  ChildPlan plan;
  alignas(16) std::array<std::byte, kChildStackBytes> stack;
  pid_t pid = -1;
  UniqueFd pidfd;
  bool in_cgroup = false;
};

Spawn::Spawn(std::unique_ptr<State> state) : state_(std::move(state)) {}

Spawn::~Spawn() {
  if (!wait(20ms)) state_.release();  // NOLINT(bugprone-unused-return-value)
}

std::unique_ptr<Spawn> Spawn::begin(const SpawnRequest& request) {
  auto state = std::make_unique_for_overwrite<State>();
  state->program = request.program;
  state->argv = request.argv;
  state->environment.reserve(request.environment.size());
  for (const auto& [name, value] : request.environment)
    state->environment.push_back(name + "=" + value);
  state->start = request.start;
  state->argv_pointers = pointers_to(state->argv);
  state->environment_pointers = pointers_to(state->environment);

  ChildPlan& plan = state->plan;
  plan.program = state->program.c_str();
  plan.argv = state->argv_pointers.data();
  plan.environment = state->environment_pointers.data();
  plan.stdio[0] = request.stdio.in;
  plan.stdio[1] = request.stdio.out;
  plan.stdio[2] = request.stdio.err;
  plan.parent = ::getpid();
  plan.start = &state->start;
  plan.limits = state->start.limits.data();
  if (!request.processors.empty()) {
    state->processors = processor_bits(request.processors);
    plan.processors = state->processors.data();
    plan.processor_bytes = state->processors.size() * sizeof(unsigned long);
  }
  plan.kept = state->start.kept.data();
  plan.kept_count = state->start.kept.size();
  plan.changed_limits = limits_that_differ(request.start);

  int pidfd = -1;
  int cgroup = request.cgroup;
  state->pid = clone_child(plan, state->stack.data(), pidfd, cgroup);
  if (state->pid > 0) {
    state->pidfd.reset(pidfd);
    state->in_cgroup = cgroup >= 0;
  } else {
    plan.running = 0;
  }
  return std::unique_ptr<Spawn>(new Spawn(std::move(state)));
}

pid_t Spawn::pid() const {
  return state_->pid > 0 ? state_->pid : -1;
}

bool Spawn::in_cgroup() const {
  return state_->in_cgroup;
}

UniqueFd Spawn::take_pidfd() {
  return std::move(state_->pidfd);
}

bool Spawn::wait(std::optional<Duration> limit) {
  std::atomic<int>& running = state_->plan.running;
  const auto end = std::chrono::steady_clock::now() + limit.value_or(Duration{0});
  // The kernel's waking is one between processes: not FUTEX_WAIT_PRIVATE.
  while (running.load(std::memory_order_acquire) != 0) {
    const Duration left = end - std::chrono::steady_clock::now();
    if (limit && left <= Duration{0}) return false;
    const timespec timeout{left / 1s, (left % 1s).count()};
    ::syscall(SYS_futex, reinterpret_cast<int*>(&running), FUTEX_WAIT, 1,
              limit ? &timeout : nullptr, nullptr, 0);
  }
  return true;
}

SpawnResult Spawn::finish() {
  wait();
  SpawnResult result;
  const ChildPlan& plan = state_->plan;
  if (state_->pid < 0) {
    result.error = -state_->pid;
    result.detail = std::string("cannot start a process: ") + with_limit(result.error);
    return result;
  }
  if (plan.error != 0) {
    while (::waitpid(state_->pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    result.error = plan.error;
    result.detail = explain(state_->program, plan.error, plan.step);
    return result;
  }
  result.pid = state_->pid;
  result.pidfd = std::move(state_->pidfd);
  result.in_cgroup = state_->in_cgroup;
  return result;
}

SpawnResult spawn(const SpawnRequest& request) {
  return Spawn::begin(request)->finish();
}

}  // namespace muster::agent
