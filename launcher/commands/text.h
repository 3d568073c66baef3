// SPDX-License-Identifier: Apache-2.0
//
// Small text tools. Debian's abseil is built with a string_view of its own, so absl::StrCat and
// absl::StrSplit do not take the standard one; these do, and abseil's where it is handed out.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <absl/strings/string_view.h>

namespace muster::launcher {

namespace text_detail {

inline void append(std::string& out, std::string_view part) {
  out.append(part);
}
inline void append(std::string& out, absl::string_view part) {
  out.append(part.data(), part.size());
}
inline void append(std::string& out, const std::string& part) {
  out.append(part);
}
inline void append(std::string& out, const char* part) {
  out.append(part);
}
template <std::integral Number>
void append(std::string& out, Number part) {
  static_assert(!std::is_same_v<Number, char> && !std::is_same_v<Number, bool>);
  out.append(std::to_string(part));
}

}  // namespace text_detail

// All parts, one after the other; whole numbers in decimal.
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (text_detail::append(out, parts), ...);
  return out;
}

// The pieces between separators: one more than there are separators. At most `most` pieces.
inline std::vector<std::string_view> split(std::string_view text, char separator,
                                           std::size_t most = std::string_view::npos) {
  std::vector<std::string_view> pieces;
  while (pieces.size() + 1 < most) {
    const std::size_t end = text.find(separator);
    if (end == std::string_view::npos) break;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  pieces.push_back(text);
  return pieces;
}

inline std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out.append(between);
    out.append(part);
  }
  return out;
}

// The whole of `text` as a number in decimal.
template <typename Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

inline std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace muster::launcher
