// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/journal.h"

namespace muster::rendezvous {

absl::Status MemoryJournal::commit(std::span<const JobRecord> records) {
  for (const JobRecord& record : records)
    records_[record.spec.job] = record;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JobRecord>> MemoryJournal::recover() {
  std::vector<JobRecord> all;
  all.reserve(records_.size());
  for (const auto& [job, record] : records_)
    all.push_back(record);
  return all;
}

}  // namespace muster::rendezvous
