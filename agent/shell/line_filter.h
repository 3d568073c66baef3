// SPDX-License-Identifier: Apache-2.0
//
// Picks the lines of a stream that contain any of some texts (--duplicate-stdout-filters). A line
// is the bytes up to '\n', progress states ('\r') and all. One above kLongestLine is cut there and
// looked at piece by piece, a text that a cut parts is found all the same; once a piece was picked
// so is the rest of its line. What a stream ends with counts as a line.
//
// Thread rule: none of its own; one caller at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::agent {

class LineFilter {
 public:
  // Whole lines, the last byte is '\n'.
  using Sink = std::function<void(std::string)>;

  // Each line that is picked begins with `prefix`. REQUIRES: no text is empty.
  LineFilter(std::vector<std::string> texts, std::string prefix);

  void feed(std::string_view data, const Sink& sink);
  void finish(const Sink& sink);

 private:
  bool has_text(std::string_view line) const;
  void take(std::string_view part, std::string& out);
  void end_line(std::string& out);
  void append(std::string_view line, std::string& out) const;

  std::vector<std::string> texts_;
  std::string prefix_;
  std::size_t overlap_ = 0;  // what a cut may part: the longest text less one
  std::string line_;         // the current line as far as it is kept
  bool cut_ = false;         // pieces of it are gone
  bool picked_ = false;      // one of them was picked
};

}  // namespace muster::agent
