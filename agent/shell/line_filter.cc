// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/line_filter.h"

#include <algorithm>
#include <utility>

#include "agent/shell/line_splitter.h"

namespace muster::agent {

LineFilter::LineFilter(std::vector<std::string> texts, std::string prefix)
    : texts_(std::move(texts)), prefix_(std::move(prefix)) {
  for (const std::string& text : texts_)
    overlap_ = std::max(overlap_, text.size() - 1);
}

void LineFilter::feed(std::string_view data, const Sink& sink) {
  std::string out;
  if (!line_.empty() || cut_) {
    const std::size_t end = data.find('\n');
    take(data.substr(0, end), out);
    if (end != std::string_view::npos) end_line(out);
    data.remove_prefix(end == std::string_view::npos ? data.size() : end + 1);
  }
  const std::size_t last = data.rfind('\n');
  if (last != std::string_view::npos) {
    std::string_view lines = data.substr(0, last + 1);
    data.remove_prefix(last + 1);
    if (!has_text(lines)) lines = {};  // most of the time
    while (!lines.empty()) {
      const std::size_t end = lines.find('\n');
      const std::string_view line = lines.substr(0, end);
      if (line.size() >= kLongestLine) {
        take(line, out);
        end_line(out);
      } else if (has_text(line)) {
        append(line, out);
      }
      lines.remove_prefix(end + 1);
    }
  }
  take(data, out);
  if (!out.empty()) sink(std::move(out));
}

void LineFilter::finish(const Sink& sink) {
  std::string out;
  if (!line_.empty()) end_line(out);
  cut_ = picked_ = false;
  if (!out.empty()) sink(std::move(out));
}

// More of the current line, its end not among it.
void LineFilter::take(std::string_view part, std::string& out) {
  while (line_.size() + part.size() >= kLongestLine) {
    const std::size_t room = kLongestLine - line_.size();
    line_ += part.substr(0, room);
    part.remove_prefix(room);
    cut_ = true;
    if (picked_ || has_text(line_)) {
      picked_ = true;
      append(line_, out);
      line_.clear();
    } else {
      line_.erase(0, line_.size() - std::min(overlap_, line_.size() - 1));
    }
  }
  line_ += part;
}

void LineFilter::end_line(std::string& out) {
  if (picked_ ? !line_.empty() : has_text(line_)) append(line_, out);
  line_.clear();
  cut_ = picked_ = false;
}

bool LineFilter::has_text(std::string_view line) const {
  return std::any_of(texts_.begin(), texts_.end(), [line](const std::string& text) {
    return line.find(text) != std::string_view::npos;
  });
}

void LineFilter::append(std::string_view line, std::string& out) const {
  ((out += prefix_) += line) += '\n';
}

}  // namespace muster::agent
