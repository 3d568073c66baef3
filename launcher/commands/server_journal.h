// SPDX-License-Identifier: Apache-2.0
//
// A rendezvous server's journal as a command opens it: `journal.db` in the server's own folder.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "launcher/rendezvous/shell/server_core.h"

namespace muster::launcher {

// Opens the journal in `folder`, which exists, and gives it and what it holds to the server.
// Says what it notes. Errors as open_sqlite_journal: each text names the file and what to do.
absl::Status open_server_journal(const std::string& folder, rendezvous::ServerOptions& options);

// "2 jobs (a, b) go on from it", or "no job is live": for the line that says which file it is.
std::string taken_over(const rendezvous::JournalContents& contents);

}  // namespace muster::launcher
