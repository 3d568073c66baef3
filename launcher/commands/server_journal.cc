// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/server_journal.h"

#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/commands/text.h"
#include "launcher/rendezvous/shell/sqlite_journal.h"

namespace muster::launcher {

absl::Status open_server_journal(const std::string& folder, rendezvous::ServerOptions& options) {
  absl::StatusOr<std::unique_ptr<rendezvous::Journal>> journal =
      rendezvous::open_sqlite_journal(folder + "/journal.db");
  if (!journal.ok()) return journal.status();
  absl::StatusOr<rendezvous::JournalContents> written = (*journal)->read();
  if (!written.ok()) return written.status();
  if (!written->note.empty()) say(written->note);
  options.journal = *std::move(journal);
  options.written = *std::move(written);
  return absl::OkStatus();
}

std::string taken_over(const rendezvous::JournalContents& contents) {
  constexpr std::size_t kNamed = 8;
  std::size_t live = 0;
  std::string names;
  for (const rendezvous::RunRecord& run : contents.runs) {
    if (run.job.outcome || run.job.server_left) continue;
    if (++live <= kNamed) names += cat(live == 1 ? "" : ", ", run.job.spec.job);
  }
  if (live == 0) return "no job is live";
  return cat(live, live == 1 ? " job (" : " jobs (", names, live > kNamed ? ", …" : "",
             live == 1 ? ") goes on" : ") go on");
}

}  // namespace muster::launcher
