// SPDX-License-Identifier: Apache-2.0
//
// How often the kernel's out-of-memory killer has struck in this process's control group, which
// is that of its workers too.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::agent {

class OomCounter {
 public:
  // Finds the file: memory.oom_control (version 1) or memory.events (version 2) of the group that
  // <proc>/self/cgroup names below `root`. Inside a container that path may be the host's: then
  // the nearest one upwards that is there.
  explicit OomCounter(const std::string& proc = "/proc",
                      const std::string& root = "/sys/fs/cgroup");

  // nullopt: there is no such file, or it does not count.
  std::optional<std::uint64_t> read() const;

 private:
  std::string path_;
};

}  // namespace muster::agent
