// SPDX-License-Identifier: Apache-2.0
//
// See status/status.h beside this.
#pragma once

#include <charconv>
#include <cstdint>
#include <sstream>
#include <string>

namespace absl {

struct Hex {
  explicit Hex(std::uint64_t number) : value(number) {}
  std::uint64_t value;
};

inline std::ostream& operator<<(std::ostream& out, const Hex& hex) {
  char text[17] = {};
  std::to_chars(text, text + 16, hex.value, 16);
  return out << text;
}

template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace absl
