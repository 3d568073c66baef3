// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/console_out.h"

#include <algorithm>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace muster::agent {
namespace {

constexpr Duration kStuck = 2s;
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

WriterWatch::WriterWatch(const OutputWriter& writer, int fd) : writer_(writer), fd_(fd) {
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) return;
  question_ = S_ISFIFO(info.st_mode) ? FIONREAD : TIOCOUTQ;  // SIOCOUTQ is the same number
}

Instant WriterWatch::moved_at(Instant now) {
  int unread = 0;
  if (question_ != 0 && ::ioctl(fd_, question_, &unread) != 0) unread = 0;
  const std::uint64_t written = writer_.written();
  const bool moved = written != written_ || unread != unread_ || writer_.idle();
  if (moved || !moved_at_) moved_at_ = now;
  written_ = written;
  unread_ = unread;
  return *moved_at_;
}

ConsoleSurface::ConsoleSurface(boost::asio::io_context& io, int fd, SpoolLimits limits,
                               std::function<void(std::uint64_t)> dropped)
    : writer(io, std::move(limits), std::move(dropped)),
      watch(writer, fd),
      terminal(::isatty(fd) == 1) {}

bool ConsoleSurface::wants_rest(Instant now) {
  return writer.nearly_full() && now - watch.moved_at(now) < kStuck;
}

void ConsoleOut::show(StreamId stream, PieceKind kind, std::string_view text,
                      const std::string& prefix) {
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
  screen.writer.write(target_, std::move(out), nullptr);
}

}  // namespace muster::agent
