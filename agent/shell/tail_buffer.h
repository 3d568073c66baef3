// SPDX-License-Identifier: Apache-2.0
//
// The last bytes of a stream, for the failure report. At most kKept bytes are answered for and
// twice that held.
//
// Thread rule: one caller at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::agent {

class TailBuffer {
 public:
  static constexpr std::size_t kKept = 64 * 1024;

  void append(std::string_view data);
  void clear() { *this = TailBuffer(); }

  // The last `lines` lines, cut at the front to `limit` bytes; valid UTF-8 (what is not becomes
  // U+FFFD), of a line rewritten with '\r' its last state. No '\n' at the end.
  std::string last_lines(std::size_t lines, std::size_t limit) const;
  // All that is kept, byte for byte; begins with a whole line where there is one.
  std::string kept() const;

 private:
  std::string bytes_;
  bool cut_ = false;  // there was more
};

}  // namespace muster::agent
