// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_shell_process/harness.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "agent/shell/descendants.h"
#include "proto/base/check.h"

namespace muster::agent {

const StartingState& starting_state() {
  static const StartingState start = [] {
    const StartingState captured = capture_starting_state();
    take_signals(captured, stop_signals(captured));
    return captured;
  }();
  return start;
}

bool run_until(IoLoop& loop, const std::function<bool()>& holds, Duration limit) {
  const Instant deadline = IoLoop::now() + limit;
  while (!holds()) {
    if (IoLoop::now() > deadline) return false;
    loop.context().restart();
    loop.context().run_one_for(20ms);
  }
  return true;
}

bool wait_until(const std::function<bool()>& holds, Duration limit) {
  const Instant deadline = IoLoop::now() + limit;
  while (!holds()) {
    if (IoLoop::now() > deadline) return false;
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

TempFolder::TempFolder() {
  std::string name = "/tmp/muster-process-test-XXXXXX";
  MUSTER_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

pid_t read_pid(const std::string& path) {
  return ::atoi(read_text(path).c_str());
}

bool is_running(pid_t pid) {
  const auto process = read_process(pid);
  return process && process->state != 'Z' && process->state != 'X';
}

std::size_t count_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

WorkerRequest probe_request(std::vector<std::string> arguments) {
  WorkerRequest request;
  request.spawn.program = PROBE;
  request.spawn.argv = std::move(arguments);
  request.spawn.argv.insert(request.spawn.argv.begin(), "probe");
  request.spawn.environment = own_environment();
  request.spawn.start = starting_state();
  return request;
}

WorkerRequest shell_request(const std::string& script) {
  WorkerRequest request = probe_request({});
  request.spawn.program = "/bin/sh";
  request.spawn.argv = {"sh", "-c", script};
  return request;
}

WorkerCallbacks Observed::callbacks() {
  WorkerCallbacks calls;
  calls.spawned = [this](pid_t started) {
    ++spawned;
    pid = started;
    log.emplace_back("spawned");
  };
  calls.ended = [this](const WorkerExit& how) {
    ++ended;
    exit = how;
    log.emplace_back("ended");
  };
  calls.gone = [this] {
    ++gone;
    log.emplace_back("gone");
  };
  calls.unkillable = [this](pid_t stuck, const std::string& state) {
    ++unkillable;
    stuck_pid = stuck;
    stuck_state = state;
    log.emplace_back("unkillable");
  };
  return calls;
}

}  // namespace muster::agent
