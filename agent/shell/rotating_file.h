// SPDX-License-Identifier: Apache-2.0
//
// A log file that is begun anew when it is large: FILE becomes FILE.1, that FILE.2, and so on.
//
// Invariants: bytes are in the files in the order written, none twice; a line that is shorter than
// the limit is in one file, whole, so that a file is larger than the limit by the end of its last
// line at most (a longer line is cut at twice the limit); where files cannot be renamed the one
// that is there goes on growing.
//
// Thread rule: made on one thread, then used on one other (the writer's).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "agent/shell/log_rules.h"
#include "agent/shell/unique_fd.h"

namespace muster::agent {

class RotatingFile {
 public:
  // `file` is open for appending at `path`. REQUIRES: rule.bytes > 0.
  RotatingFile(UniqueFd file, std::string path, LogRotation rule);

  // As write_all.
  int write(std::string_view& rest, std::atomic<std::uint64_t>& written);
  // The errno with which files could not be renamed, once; 0: nothing new.
  int take_trouble();

 private:
  std::size_t room_for(std::string_view text) const;
  void rotate();
  int rename_all();

  UniqueFd file_;
  std::string path_;
  LogRotation rule_;
  std::uint64_t size_ = 0;
  std::uint64_t limit_;         // rises by the rule's where a rotation failed
  bool at_line_start_ = false;  // where the file ends; one that somebody else began may be mid-line
  int trouble_ = 0;
  bool trouble_told_ = false;
};

}  // namespace muster::agent
