// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/tail_buffer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace muster::agent {
namespace {

// Length of the well-formed UTF-8 sequence at the front of `text`, 0 where there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [text](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xC0U) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and numbers above U+10FFFF.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

std::string to_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) {
      clean += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      clean += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return clean;
}

std::string_view last_state(std::string_view line) {
  while (!line.empty() && line.back() == '\r')
    line.remove_suffix(1);
  const std::size_t overwritten = line.rfind('\r');
  return overwritten == std::string_view::npos ? line : line.substr(overwritten + 1);
}

}  // namespace

void TailBuffer::append(std::string_view data) {
  if (data.size() > kKept) {
    bytes_.assign(data.substr(data.size() - kKept));
    cut_ = true;
    return;
  }
  if (bytes_.size() + data.size() > 2 * kKept) {
    bytes_.erase(0, bytes_.size() - kKept);
    cut_ = true;
  }
  bytes_ += data;
}

std::string TailBuffer::kept() const {
  std::string_view text(bytes_);
  bool cut = cut_;
  if (text.size() > kKept) {
    text.remove_prefix(text.size() - kKept);
    cut = true;
  }
  const std::size_t end = text.find('\n');
  if (cut && end != std::string_view::npos && end + 1 < text.size()) text.remove_prefix(end + 1);
  return std::string(text);
}

std::string TailBuffer::last_lines(std::size_t lines, std::size_t limit) const {
  std::string_view rest(bytes_);
  if (rest.size() > kKept) rest.remove_prefix(rest.size() - kKept);
  if (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  std::vector<std::string> taken;
  std::size_t size = 0;
  while (!rest.empty() && taken.size() < lines) {
    const std::size_t begin = rest.rfind('\n');
    const bool first = begin == std::string_view::npos;
    std::string line = to_utf8(last_state(first ? rest : rest.substr(begin + 1)));
    rest = first ? std::string_view() : rest.substr(0, begin);
    if (size + line.size() + 1 > limit) {
      if (!taken.empty()) break;
      // One long line: its end says more than its begin. Cut between characters.
      std::size_t cut = line.size() + 1 - limit;
      while (cut < line.size() && (static_cast<std::uint8_t>(line[cut]) & 0xC0U) == 0x80)
        ++cut;
      line.erase(0, cut);
    }
    size += line.size() + 1;
    taken.push_back(std::move(line));
  }
  std::string text;
  for (auto line = taken.rbegin(); line != taken.rend(); ++line) {
    if (line != taken.rbegin()) text += '\n';
    text += *line;
  }
  return text;
}

}  // namespace muster::agent
