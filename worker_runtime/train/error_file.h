// SPDX-License-Identifier: Apache-2.0
//
// Why this rank ended, for whoever started it: torchrun's error file, with two fields of ours that
// tell a victim from a cause.
//
// Thread rule: blocks on the disk; one thread a path.
#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>

namespace muster::runtime {

struct ErrorReport {
  int exit_code = 1;
  std::string message;     // one line
  bool secondary = false;  // another rank's end was the cause
  int peer = -1;           // that rank, where known
};

// The JSON text. `unix_seconds` is when it happened.
std::string error_text(const ErrorReport& report, long unix_seconds);

// Writes it as `path`, whole or not at all; an empty path is fine and writes nothing.
absl::Status write_error_file(const std::string& path, const ErrorReport& report);

}  // namespace muster::runtime
