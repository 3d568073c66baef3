// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/oom_counter.h"

#include <fstream>
#include <string_view>
#include <unistd.h>

namespace muster::agent {
namespace {

// `group` and what is above it, below `base`.
std::string nearest(const std::string& base, std::string group, const std::string& file) {
  for (;;) {
    while (group.ends_with('/'))
      group.pop_back();
    std::string path = base + group + "/" + file;
    if (::access(path.c_str(), R_OK) == 0) return path;
    if (group.empty()) return "";
    group.resize(group.rfind('/'));
  }
}

bool lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const std::size_t end = controllers.find(',');
    if (controllers.substr(0, end) == wanted) return true;
    controllers.remove_prefix(end == std::string_view::npos ? controllers.size() : end + 1);
  }
  return false;
}

}  // namespace

OomCounter::OomCounter(const std::string& proc, const std::string& root) {
  std::ifstream groups(proc + "/self/cgroup");
  std::string version_2;
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path", "0::/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string_view controllers(line.data() + first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (lists(controllers, "memory")) {
      path_ = nearest(root + "/memory", group, "memory.oom_control");
    } else if (controllers.empty()) {
      version_2 = nearest(root, group, "memory.events");
    }
  }
  if (path_.empty()) path_ = version_2;
}

std::optional<std::uint64_t> OomCounter::read() const {
  if (path_.empty()) return std::nullopt;
  std::ifstream file(path_);
  std::string word;
  std::uint64_t count = 0;
  while (file >> word >> count) {
    if (word == "oom_kill") return count;
  }
  return std::nullopt;
}

}  // namespace muster::agent
