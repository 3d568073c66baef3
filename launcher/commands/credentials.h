// SPDX-License-Identifier: Apache-2.0
//
// --token-file, --tls-cert, --tls-key and --tls-ca: what a process shows over the network and asks
// of others, from files.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "launcher/commands/small_flags.h"
#include "proto/transport/credentials.h"

namespace muster::launcher {

// The names of the flags, for parse_small().
std::vector<SmallFlag> credential_flags();

// What stands in a command's help for them.
inline constexpr const char* kCredentialsHelp =
    "  --token-file FILE        the server's token; MUSTER_TOKEN_FILE names it too\n"
    "  --tls-cert FILE, --tls-key FILE, --tls-ca FILE\n"
    "                           as with `muster run`, where the server speaks TLS;\n"
    "                           MUSTER_TLS_CERT, _KEY and _CA name them too\n";

// Reads the files. `get`: the path that is given for a flag; empty: none. `origin`: where it comes
// from, for messages. Errors, kInvalidArgument, are headed by the origin.
absl::StatusOr<transport::Credentials> read_credentials(
    const std::function<std::string(const char* flag)>& get,
    const std::function<std::string(const char* flag)>& origin);

// Those of a small command: its flags, else MUSTER_<NAME>.
absl::StatusOr<transport::Credentials> credentials_of(const SmallLine& line);

}  // namespace muster::launcher
