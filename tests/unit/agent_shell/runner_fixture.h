// SPDX-License-Identifier: Apache-2.0
//
// One node's job, whole: AgentRunner with real workers (/bin/sh) against the real rendezvous
// machine in this process. The fixture checks at its end that nothing is left: no child, no
// descriptor, no scratch file.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/shell/agent_runner.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/agent_shell/rendezvous_link.h"

namespace muster::testing {

// The lines of a file that are not empty; none if there is no file.
std::vector<std::string> lines_of(const std::string& path);
std::string content_of(const std::string& path);

class OneNode {
 public:
  // Each worker runs `/bin/sh -c script`. Change `options` and `config` before run().
  OneNode(std::uint32_t workers, const std::string& script);
  ~OneNode();

  // Turns the loop until the runner is done (30 s at most, then the test fails).
  agent::RunResult run();
  // The same in two steps, for tests that act in between.
  void start();
  void until(const std::function<bool()>& condition);
  agent::RunResult finish();

  // Lines of the events file that hold `text`.
  std::vector<std::string> events(const std::string& text) const;
  std::string out() const;  // workers' stdout so far
  std::string err() const;
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  boost::asio::io_context io{1};
  agent::RunnerOptions options;
  agent::AgentConfig config;
  LocalServer server{io};
  std::unique_ptr<agent::AgentRunner> runner;

 private:
  void turn();

  TempDir dir_;
  int out_ = -1;
  int err_ = -1;
  std::optional<agent::RunResult> result_;
};

}  // namespace muster::testing
