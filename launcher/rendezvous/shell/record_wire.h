// SPDX-License-Identifier: Apache-2.0
//
// The records of a run <-> muster/v1/journal.proto, validated like everything else that comes
// from outside: a journal may be older than this program, or damaged.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "launcher/rendezvous/core/record.h"
#include "muster/v1/journal.pb.h"
#include "proto/wire/border.h"

namespace muster::rendezvous {

// The progress travels inside the job's message.
void write(const JobRecord& job, const ProgressRecord& progress, v1::JobRecord& to);
void read(const v1::JobRecord& from, wire::Border& border, JobRecord& job,
          ProgressRecord& progress);

void write(const LifeRecord& from, v1::LifeRecord& to);
LifeRecord read(const v1::LifeRecord& from, wire::Border& border);

void write(const NodeRecord& from, v1::NodeRecord& to);
NodeRecord read(const v1::NodeRecord& from, wire::Border& border);

// Every record has one beside it: SQLite notices a torn file, not a flipped bit in a value.
std::int64_t checksum(const std::string& bytes);

// A record as it stands in its row. Where the checksum is wrong, the bytes are no message or the
// border refuses it: an error in words.
absl::Status read_row(const std::string& bytes, std::int64_t sum, JobRecord& job,
                      ProgressRecord& progress);
absl::StatusOr<LifeRecord> read_life_row(const std::string& bytes, std::int64_t sum);
absl::StatusOr<NodeRecord> read_node_row(const std::string& bytes, std::int64_t sum);

// What no server can have written, whatever its parts look like alone: a phase without what it
// needs, ranks with holes. Complains; the machine takes only runs that pass.
void check_run(const RunRecord& run, wire::Border& border);

}  // namespace muster::rendezvous
