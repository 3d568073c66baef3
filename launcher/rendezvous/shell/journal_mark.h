// SPDX-License-Identifier: Apache-2.0
//
// How far a journal was written: a small file beside it, `<journal>-mark`.
//
// SQLite takes a write-ahead log that is cut, altered or gone for one that ended there, and says
// nothing. So every transaction counts itself in the database, and the mark is told the count after
// it: a database that has counted less than its mark says has lost writes. The mark is written
// without a sync, like the log: where the host itself went down both may lack their end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::rendezvous {

struct Mark {
  std::int64_t commits = 0;
  std::string boot;     // of the host that wrote it: this_boot()
  bool closed = false;  // all of it is in the database, synced, and the log is gone
};

// A line of text with a checksum; it has one length, whatever it says.
std::string text_of(const Mark& mark);
std::optional<Mark> mark_in(std::string_view text);

std::string mark_path(const std::string& journal);
std::string this_boot();  // the kernel's boot id; empty where there is none

struct FoundMark {
  bool there = false;
  std::optional<Mark> mark;  // absent: it is not there, or says nothing that can be read
};
FoundMark find_mark(const std::string& journal);

// Whether a journal is as whole as its mark says. At most one of the two is set.
struct Verdict {
  std::string damage;  // not to be used: why, for "… is damaged (why)"
  std::string note;    // to be used, but whoever starts the server is to know this line
};
// `commits`: as the database counted; absent: by a version that did not count. `boot`: this one's.
Verdict judge(const std::string& journal, const FoundMark& found,
              std::optional<std::int64_t> commits, const std::string& boot);

// Writes the mark of a journal that this process holds. Goes after the database is closed: where
// that left no log behind, the mark says so.
class MarkWriter {
 public:
  // Creates the file or takes it over, and syncs it once. Errors name it.
  static absl::StatusOr<std::unique_ptr<MarkWriter>> open(const std::string& journal,
                                                          std::int64_t commits);
  ~MarkWriter();
  MarkWriter(const MarkWriter&) = delete;
  MarkWriter& operator=(const MarkWriter&) = delete;

  std::int64_t commits() const { return mark_.commits; }
  absl::Status write(std::int64_t commits);

 private:
  explicit MarkWriter(std::string journal) : journal_(std::move(journal)) {}
  bool put();

  std::string journal_;
  int file_ = -1;
  Mark mark_;
};

}  // namespace muster::rendezvous
