// SPDX-License-Identifier: Apache-2.0
//
// Where a server's knowledge of its jobs survives. One step of the rendezvous machine is one
// transaction: the server commits every JobRecord of a step before any other action of that step
// leaves the process.
//
// Thread rule: io thread only.
#pragma once

#include <map>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::rendezvous {

class Journal {
 public:
  virtual ~Journal() = default;

  // Makes all records durable, or none. The newest record of a job replaces its older ones.
  // On an error the server stops acting: what it cannot remember it must not promise.
  virtual absl::Status commit(std::span<const JobRecord> records) = 0;

  // The newest record of every job, ordered by job id.
  virtual absl::StatusOr<std::vector<JobRecord>> recover() = 0;
};

// Lives as long as the process: a server that restarts learns from its agents instead.
class MemoryJournal : public Journal {
 public:
  absl::Status commit(std::span<const JobRecord> records) override;
  absl::StatusOr<std::vector<JobRecord>> recover() override;

 private:
  std::map<JobId, JobRecord> records_;
};

}  // namespace muster::rendezvous
