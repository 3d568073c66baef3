// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/line_splitter.h"

#include <algorithm>

namespace muster::agent {

void LineSplitter::feed(std::string_view data, const Sink& sink) {
  if (cr_pending_ || overwritten_ || data.find('\r') != std::string_view::npos) {
    take_slow(data, sink);
    return;
  }
  // No progress display in sight: whole lines go out in one piece.
  const std::size_t last = data.rfind('\n');
  if (last == std::string_view::npos) {
    take_text(data, sink);
    return;
  }
  std::string_view lines = data.substr(0, last + 1);
  if (!line_.empty()) {
    const std::size_t first = lines.find('\n') + 1;
    take_text(lines.substr(0, first - 1), sink);
    line_ += '\n';
    sink(PieceKind::kWhole, line_);
    line_.clear();
    lines.remove_prefix(first);
  }
  if (!lines.empty()) sink(PieceKind::kWhole, lines);
  take_text(data.substr(last + 1), sink);
}

void LineSplitter::take_slow(std::string_view data, const Sink& sink) {
  while (!data.empty()) {
    if (data.front() == '\n') {
      if (cr_pending_) line_ += '\r';
      line_ += '\n';
      sink(PieceKind::kWhole, line_);
      line_.clear();
      cr_pending_ = overwritten_ = partial_shown_ = false;
      data.remove_prefix(1);
    } else if (data.front() == '\r') {
      cr_pending_ = true;  // as often as it comes: nothing is overwritten until text follows
      data.remove_prefix(1);
    } else {
      if (cr_pending_) overwrite(sink);
      const std::size_t end = std::min(data.find_first_of("\r\n"), data.size());
      take_text(data.substr(0, end), sink);
      data.remove_prefix(end);
    }
  }
}

// A lone '\r': what the line showed is history; on a terminal it was worth showing.
void LineSplitter::overwrite(const Sink& sink) {
  if (updates_ && !line_.empty() && !partial_shown_) sink(PieceKind::kUpdate, line_);
  line_.clear();
  cr_pending_ = partial_shown_ = false;
  overwritten_ = true;
}

void LineSplitter::take_text(std::string_view text, const Sink& sink) {
  if (!text.empty()) partial_shown_ = false;
  while (line_.size() + text.size() >= kLongestLine) {
    const std::size_t room = kLongestLine - line_.size();
    line_ += text.substr(0, room);
    text.remove_prefix(room);
    sink(PieceKind::kPart, line_);
    line_.clear();
  }
  line_ += text;
}

bool LineSplitter::has_partial() const {
  if (line_.empty()) return false;
  if (!overwritten_ && !cr_pending_) return true;
  return updates_ && !partial_shown_;
}

void LineSplitter::quiet(const Sink& sink) {
  if (!has_partial()) return;
  if (overwritten_ || cr_pending_) {
    // Kept as well: a '\n' may still make it the line's last word.
    partial_shown_ = true;
    sink(PieceKind::kUpdate, line_);
    return;
  }
  sink(PieceKind::kPart, line_);
  line_.clear();
}

void LineSplitter::finish(const Sink& sink) {
  if (!line_.empty()) sink(PieceKind::kPart, line_);
  line_.clear();
  cr_pending_ = overwritten_ = partial_shown_ = false;
}

}  // namespace muster::agent
