// SPDX-License-Identifier: Apache-2.0
//
// error.json: what a worker says about its own failure, in torchrun's schema:
//   {"message": {"message": "<Type>: <text>", "extraInfo": {"py_callstack": …, "timestamp": …}}}
// or a plain string under "message". Ours adds "secondary": true: this rank failed because
// another had. Written by anyone, so nothing in it is trusted and nothing in it is fatal.
//
// Thread rule: any thread; files are read and written, nothing is shared.
#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>

#include "proto/base/time.h"

namespace muster::agent {

struct ErrorReport {
  std::string text;  // the file as it is, valid JSON; empty: none was written
  bool secondary = false;
  std::string complaint;  // why a file that is there was not used; empty: nothing to say
};

// Reads at most 64 KiB of a regular file; anything else is complained of. Never blocks.
ErrorReport read_error_file(const std::string& path);

// How long ago `path` was written, by the file system's clock: since when its worker has been
// failing, as it says. nullopt: there is no such file, it is empty, or older than a failure takes
// to end a process (10 s): then it tells of something that the worker survived.
std::optional<Duration> failing_for(const std::string& path);

// The first line of the message in the text of an error.json, at most 300 bytes; "" if none.
std::string error_message(const std::string& text);

// Writes `text` to `path` so that readers see all of it or nothing (a new file, renamed).
absl::Status write_whole(const std::string& path, const std::string& text);

}  // namespace muster::agent
