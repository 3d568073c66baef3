// SPDX-License-Identifier: Apache-2.0
//
// What the user says about log files: when one is begun anew (--log-rotate), and which runs stay
// (--log-keep).
#pragma once

#include <cstdint>
#include <optional>

#include "proto/base/time.h"

namespace muster::agent {

struct LogRotation {
  std::uint64_t bytes = 0;  // a file of so many is put away; 0: never
  std::uint32_t kept = 3;   // files that were put away: FILE.1 (the newest) to FILE.<kept>
  bool operator==(const LogRotation&) const = default;
};

// At most one of them; none: every run stays.
struct LogKeep {
  std::optional<std::uint32_t> runs;
  std::optional<Duration> age;  // since something of the run was written
  std::optional<std::uint64_t> bytes;
  bool all() const { return !runs && !age && !bytes; }
  bool operator==(const LogKeep&) const = default;
};

}  // namespace muster::agent
