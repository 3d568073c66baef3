// SPDX-License-Identifier: Apache-2.0
//
// The journal in one SQLite file, its mark beside it (journal_mark.h), and its -wal while a server
// runs or after one was killed.
//
// A commit is in the file's write-ahead log when it returns: a server killed at any instant loses
// nothing. It is not synced to the disk: after a power failure the file is whole but may lack the
// last transactions, and the server that reads it learns the rest from its agents (state_lost).
// What is missing for any other reason is damage.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "launcher/rendezvous/shell/journal.h"

namespace muster::rendezvous {

// Opens or creates the file, for this process alone. Errors: kFailedPrecondition, written by a
// newer version or by another program; kDataLoss, damaged; kAborted, in use by another process;
// kUnavailable, anything else. Each text
// names the file, and what to do; a refusal leaves the files as they are.
absl::StatusOr<std::unique_ptr<Journal>> open_sqlite_journal(const std::string& path);

}  // namespace muster::rendezvous
