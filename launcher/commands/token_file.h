// SPDX-License-Identifier: Apache-2.0
//
// The secret that every port of a server asks for, from a file: never from the command line, which
// everybody on the host can read.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace muster::launcher {

// The one line of `path`, without its end. Errors, in words that begin with the path: kNotFound and
// kPermissionDenied as the system has it; kInvalidArgument: empty, longer than 4096 bytes, several
// lines, or bytes other than visible ASCII, which gRPC does not carry.
absl::StatusOr<std::string> read_token_file(const std::string& path);

}  // namespace muster::launcher
