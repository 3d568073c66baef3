// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/rendezvous_shell/harness.h"

#include <cstdlib>
#include <filesystem>
#include <unistd.h>

namespace muster::test {

AgentMessage join_message(const JobId& job, const NodeName& node, std::uint32_t min_nodes,
                          std::uint32_t max_nodes) {
  Join join;
  join.spec.job = job;
  join.spec.min_nodes = min_nodes;
  join.spec.max_nodes = max_nodes;
  join.spec.program = "/bin/true";
  join.spec.program_hash = 7;
  join.spec.policy.node_timeout = 60s;
  join.node.name = node;
  join.node.host = "host-" + node;
  join.node.dialed_addr = "127.0.0.1";
  join.node.agent_pid = ::getpid();
  Envelope envelope;
  envelope.job = job;
  envelope.node = node;
  return {envelope, join};
}

AgentMessage message_from(const Envelope& envelope, AgentBody body) {
  return {envelope, std::move(body)};
}

rendezvous::ServerOptions server_options() {
  rendezvous::ServerOptions options;
  options.machine.server_instance = "instance-1";
  options.machine.holder = "host test, pid 1, user test";
  options.version = "0.1.0";
  options.user = "tester";
  options.seed = 1;
  return options;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (auto at = std::filesystem::directory_iterator("/proc/self/fd");
       at != std::filesystem::directory_iterator(); ++at) {
    ++count;
  }
  return count;
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "muster-test-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool eventually(const std::function<bool()>& holds) {
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace muster::test
