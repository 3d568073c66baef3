// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_shell_process/freezer.h"

#include <atomic>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/check.h"
#include "tests/unit/agent_shell_process/harness.h"

namespace muster::agent {
namespace {

// Where the hierarchy is mounted; empty: nowhere.
std::string mount_point() {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string source;
    std::string path;
    std::string type;
    std::string options;
    words >> source >> path >> type >> options;
    if (type == "cgroup" && ("," + options + ",").find(",freezer,") != std::string::npos)
      return path;
  }
  return "";
}

}  // namespace

Freezer::Freezer() {
  static std::atomic<int> count = 0;
  const std::string root = mount_point();
  if (root.empty()) return;
  path_ = root + "/muster-test-" + std::to_string(::getpid()) + "-" +
          std::to_string(count.fetch_add(1));
  if (::mkdir(path_.c_str(), 0755) != 0) path_.clear();
}

Freezer::~Freezer() {
  if (!ready()) return;
  thaw();
  MUSTER_CHECK(wait_until([this] { return ::rmdir(path_.c_str()) == 0; }));
}

bool Freezer::write(const std::string& file, const std::string& text) const {
  std::ofstream out(path_ + "/" + file);
  out << text;
  out.close();
  return !out.fail();
}

void Freezer::freeze(pid_t process) {
  MUSTER_CHECK(write("cgroup.procs", std::to_string(process)));
  freeze_all();
}

void Freezer::freeze_thread(pid_t thread) {
  MUSTER_CHECK(write("tasks", std::to_string(thread)));
  freeze_all();
}

void Freezer::freeze_all() {
  MUSTER_CHECK(write("freezer.state", "FROZEN"));
  MUSTER_CHECK(wait_until([this] { return read_text(path_ + "/freezer.state") == "FROZEN\n"; }));
}

void Freezer::thaw() {
  MUSTER_CHECK(write("freezer.state", "THAWED"));
}

}  // namespace muster::agent
