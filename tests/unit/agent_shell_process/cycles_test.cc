// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <signal.h>
#include <sstream>
#include <stdlib.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/worker_process.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // slow, and keeps freed memory
#else
constexpr bool kSanitized = false;
#endif

std::size_t resident_bytes() {
  std::istringstream pages(read_text("/proc/self/statm"));
  std::size_t all = 0;
  std::size_t resident = 0;
  pages >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// All the ways to end a worker: told, killed, crashed, by itself with a child left, never started.
void cycle_once(IoLoop& loop, Supervisor& supervisor, int cycle) {
  Observed seen;
  WorkerRequest request = probe_request({cycle % 5 == 2 ? "crash" : "pause"});
  if (cycle % 5 == 3) request = shell_request("sleep 1000 & exit 3");
  if (cycle % 5 == 4) request.spawn.program = "/no/such/program";
  request.spawn.start.limits[RLIMIT_CORE].rlim_cur = 0;
  const auto worker = supervisor.start(request, seen.callbacks());
  if (cycle % 5 == 0) worker->signal(SIGTERM, SignalScope::kLeader);
  if (cycle % 5 == 1) worker->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(run_until(loop, [&] { return seen.ended == 1; }));
  if (cycle % 5 == 3) worker->signal(SIGKILL, SignalScope::kDescendants);
  REQUIRE(run_until(loop, [&] { return seen.gone == 1; }));
}

TEST_CASE("5,000 starts and ends leak no descriptor, no zombie and no memory") {
  starting_state();
  IoLoop loop;
  Supervisor supervisor(loop.context());
  const char* wanted = ::getenv("MUSTER_TEST_CYCLES");
  const int cycles = wanted != nullptr ? ::atoi(wanted) : kSanitized ? 500 : 5000;
  const int warm_up = cycles / 5;
  std::size_t descriptors = 0;
  std::size_t memory = 0;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    cycle_once(loop, supervisor, cycle);
    if (cycle == warm_up) {
      descriptors = count_descriptors();
      memory = resident_bytes();
    }
    if (cycle % 100 == 99) REQUIRE(children_of(::getpid()).empty());
  }
  CHECK(count_descriptors() == descriptors);
  // 4,000 times as little as a small allocation each would be more.
  if (!kSanitized) CHECK(resident_bytes() < memory + 256 * 1024);
  CHECK(children_of(::getpid()).empty());
}

}  // namespace
}  // namespace muster::agent
