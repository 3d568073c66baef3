// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/console_out.h"

#include <algorithm>
#include <utility>

namespace muster::agent {
namespace {

constexpr std::string_view kEraseLine = "\x1b[K";

void append_lines(std::string& out, std::string_view text, const std::string& prefix,
                  bool at_line_start) {
  if (prefix.empty()) {
    out += text;
    return;
  }
  while (!text.empty()) {
    if (at_line_start) out += prefix;
    const std::size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
    out += text.substr(0, length);
    text.remove_prefix(length);
    at_line_start = true;
  }
}

}  // namespace

void ConsoleOut::show(StreamId stream, PieceKind kind, std::string_view text,
                      const std::string& prefix, const std::shared_ptr<StreamBudget>& budget) {
  std::string out;
  out.reserve(text.size() + prefix.size() + 8);
  ConsoleSurface& screen = *surface_;
  // Somebody else's unfinished line ends here; ours is gone on with.
  if (screen.open_by != 0 && screen.open_by != stream) {
    out += '\n';
    screen.open_by = 0;
  }
  if (std::exchange(screen.transient, false)) out += kEraseLine;
  const bool goes_on = screen.open_by == stream;
  switch (kind) {
    case PieceKind::kWhole:
      append_lines(out, text, prefix, !goes_on);
      screen.open_by = 0;
      break;
    case PieceKind::kPart:
      if (!goes_on) out += prefix;
      out += text;
      screen.open_by = stream;
      break;
    case PieceKind::kUpdate:
      if (goes_on) (out += '\r') += kEraseLine;
      ((out += prefix) += text) += '\r';
      screen.open_by = 0;
      screen.transient = true;
      break;
  }
  screen.writer.write(target_, std::move(out), budget);
}

}  // namespace muster::agent
