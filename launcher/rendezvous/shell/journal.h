// SPDX-License-Identifier: Apache-2.0
//
// Where a server's knowledge of its jobs survives its death. One step of the rendezvous machine is
// one transaction: the server commits what a step ordered to be remembered before any other action
// of that step leaves the process. Another store takes SQLite's place by implementing this.
//
// Thread rule: io thread only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::rendezvous {

// A key of the workers' store.
struct StoredKey {
  JobId job;
  Generation generation = kNoGeneration;
  std::string key;
  std::optional<std::string> value;  // absent: deleted
};

struct JournalContents {
  std::vector<RunRecord> runs;  // as JournalRead wants them
  std::vector<StoredKey> keys;
  std::string note;  // a line for whoever starts the server, where not all may be there; or empty
};

class Journal {
 public:
  virtual ~Journal() = default;

  // Makes the Persist, Forget and CloseStore actions of one step durable, all or none; others are
  // ignored. On an error the server stops acting: what it cannot remember it must not promise.
  virtual absl::Status commit(std::span<const Action> actions) = 0;

  // Makes one change of the workers' store durable, before it is answered.
  virtual absl::Status put(const StoredKey& key) = 0;

  // All that was written. Called once, first. Errors name the file and what to do about it.
  virtual absl::StatusOr<JournalContents> read() = 0;
};

}  // namespace muster::rendezvous
