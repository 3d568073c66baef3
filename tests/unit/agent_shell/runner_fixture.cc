// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_shell/runner_fixture.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <catch2/catch.hpp>

#include "agent/shell/scratch.h"
#include "agent/shell/signals.h"

namespace muster::testing {

namespace fs = std::filesystem;

namespace {

// The process takes its signals once, as main() does.
const agent::StartingState& starting_state() {
  static const agent::StartingState state = [] {
    const agent::StartingState start = agent::capture_starting_state();
    agent::take_signals(start, {SIGTERM, SIGUSR1});
    return start;
  }();
  return state;
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

OneNode::OneNode(std::uint32_t workers, const std::string& script) {
  options.start = starting_state();
  out_ = ::open(path("out").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  err_ = ::open(path("err").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  options.console.mode = agent::ConsoleMode::kLines;
  options.console.local_workers = workers;
  options.console.stdout_fd = out_;
  options.console.stderr_fd = err_;
  options.standard_input.local_rank.reset();
  options.log_dir = path("logs");
  options.events = path("events");
  fs::create_directory(path("run"));
  options.scratch_path = agent::choose_scratch_path({{"XDG_RUNTIME_DIR", path("run")}}, 0);

  config.spec.job = "job";
  config.spec.program = script;
  config.spec.program_hash = 1;
  config.spec.policy.restart_backoff_max = 0s;
  config.spec.policy.stop_grace = 5s;
  config.node.name = "n1";
  config.node.host = "n1";
  config.node.advertise_addr = "127.0.0.1";
  config.node.slots = workers;
  config.node.boot_id = "boot";
  config.node.agent_pid = ::getpid();
  config.node.user = "user";
  config.argv = {"/bin/sh", "-c", script};
  config.substitute_local_rank = false;
  config.environment = {{"PATH", "/usr/bin:/bin"}, {"OUT", dir_.path()}};
}

OneNode::~OneNode() {
  runner.reset();
  for (int i = 0; i < 100 && has_children(); ++i)
    io.run_one_for(20ms);
  CHECK_FALSE(has_children());
  CHECK(fs::directory_iterator(path("run")) == fs::directory_iterator());
  ::close(out_);
  ::close(err_);
}

void OneNode::start() {
  runner = std::make_unique<agent::AgentRunner>(io, options, config, server.link());
  runner->run([this](const agent::RunResult& result) { result_ = result; });
}

void OneNode::turn() {
  io.restart();
  io.run_one_for(20ms);
}

void OneNode::until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      FAIL("waited too long; stderr so far:\n"
           << err() << "\nevents:\n"
           << content_of(path("events")));
    }
    turn();
  }
}

agent::RunResult OneNode::finish() {
  until([this] { return result_.has_value(); });
  return *result_;
}

agent::RunResult OneNode::run() {
  start();
  return finish();
}

std::vector<std::string> OneNode::events(const std::string& text) const {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(path("events"))) {
    if (line.find(text) != std::string::npos) found.push_back(line);
  }
  return found;
}

std::string OneNode::out() const {
  return content_of(path("out"));
}
std::string OneNode::err() const {
  return content_of(path("err"));
}

}  // namespace muster::testing
