// SPDX-License-Identifier: Apache-2.0
//
// Reads the kernel's log (/dev/kmsg) for what it says about devices, and about memory that ran out,
// while a generation runs. The log is often root's: where it cannot be read there is nothing to
// say.
//
// Thread rule: io thread only; never blocks.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/kernel_log.h"
#include "agent/shell/unique_fd.h"

namespace muster::agent {

class KernelLogReader {
 public:
  // From the log's end as it is now. Called again: from its end then.
  void begin(const std::string& path);

  // Everything since begin(), in order.
  const std::vector<DeviceTrouble>& read();
  // Whether the kernel says since begin() that it killed this process because memory ran out; `pid`
  // is the host's number.
  bool killed_for_memory(std::int64_t pid);

 private:
  void take(std::string_view text);

  UniqueFd fd_;
  std::vector<DeviceTrouble> troubles_;
  std::set<std::int64_t> victims_;
};

// Whether this process's pids are the host's, which the kernel's log has.
bool has_the_hosts_pids();

}  // namespace muster::agent
