// SPDX-License-Identifier: Apache-2.0
//
// Cuts a worker's output into what a console may show at once: whole lines, parts of lines, and
// states of a progress display ('\r'). Bytes in, pieces out; no clock, no descriptor.
//
// Invariants:
//   1. memory is bounded: no piece that is kept grows above kLongestLine;
//   2. without '\r', the pieces put together are the input, byte for byte.
//
// Thread rule: none of its own; one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace muster::agent {

inline constexpr std::size_t kLongestLine = 64 * 1024;

enum class PieceKind : std::uint8_t {
  kWhole,   // one or more whole lines, the last byte is '\n'
  kPart,    // the begin of a line, or more of one: no '\n' in it
  kUpdate,  // what a line shows until the next '\r' overwrites it; never the last word on it
};

class LineSplitter {
 public:
  using Sink = std::function<void(PieceKind, std::string_view)>;

  // `updates`: hand out every state of a '\r' line as kUpdate (a terminal). Otherwise only the last
  // state before its '\n' comes out, with it.
  explicit LineSplitter(bool updates) : updates_(updates) {}

  void feed(std::string_view data, const Sink& sink);

  // The stream has been quiet: hands out the partial line it stopped at, as kPart, or as kUpdate
  // (terminals only) where it is a state of a '\r' line.
  void quiet(const Sink& sink);
  // Whether quiet() would hand something out.
  bool has_partial() const;

  // The stream ended: hands out what is left, as kPart.
  void finish(const Sink& sink);

 private:
  void take_slow(std::string_view data, const Sink& sink);
  void take_text(std::string_view text, const Sink& sink);
  void overwrite(const Sink& sink);

  bool updates_;
  std::string line_;            // the current line, as far as it is not handed out
  bool cr_pending_ = false;     // a '\r' came last: '\n' makes it a line end, else it overwrites
  bool overwritten_ = false;    // this line has been overwritten at least once
  bool partial_shown_ = false;  // quiet() has handed out this very state as kUpdate
};

}  // namespace muster::agent
