// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/log_lines.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "agent/shell/event_json.h"

namespace muster::agent {

namespace {

constexpr std::size_t kEarlierLines = 200;

LogLevel level_of(Severity severity) {
  switch (severity) {
    case Severity::kInfo: return LogLevel::kInfo;
    case Severity::kWarning: return LogLevel::kWarning;
    case Severity::kError: return LogLevel::kError;
  }
  return LogLevel::kError;
}

const char* word_of(Severity severity) {
  switch (severity) {
    case Severity::kInfo: return "info";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "error";
}

std::int64_t unix_us_now() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::microseconds>(
             system_clock::now().time_since_epoch())
      .count();
}

// A hostile node name or error text must not move the cursor or colour the terminal.
std::string shown(std::string_view line) {
  std::string out(line);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = '?';
  }
  return out;
}

}  // namespace

LogLines::LogLines(LogLevel level, NodeName node, std::function<void(std::string_view)> to_console)
    : level_(level), node_(shown(node)), to_console_(std::move(to_console)) {}

LogLines::~LogLines() {
  if (file_ >= 0) ::close(file_);
}

void LogLines::say(Severity severity, std::string_view text) {
  add(word_of(severity), text, level_of(severity) >= level_);
}

void LogLines::record(Severity severity, std::string_view text) {
  add(word_of(severity), text, false);
}

void LogLines::debug(std::string_view text) {
  if (!debugs() || text.empty()) return;
  to_console_(format_utc(unix_us_now()) + " " + shown(text));
  add("debug", text, false);
}

void LogLines::add(const char* word, std::string_view text, bool on_console) {
  while (text.ends_with('\n'))
    text.remove_suffix(1);
  for (bool more = true; more;) {
    const std::size_t end = text.find('\n');
    more = end != std::string_view::npos;
    const std::string line = shown(text.substr(0, end));
    if (more) text.remove_prefix(end + 1);
    if (on_console) to_console_(line);
    keep(format_utc(unix_us_now()) + " " + node_ + " " + word + " " + line + "\n");
  }
}

void LogLines::keep(std::string line) {
  if (file_ >= 0) return write_file(line);
  if (given_up_) return;
  if (earlier_.size() == kEarlierLines) earlier_.erase(earlier_.begin());
  earlier_.push_back(std::move(line));
}

void LogLines::write_file(const std::string& lines) {
  const ssize_t written = ::write(file_, lines.data(), lines.size());
  if (written == static_cast<ssize_t>(lines.size())) return;
  const std::string reason = written < 0 ? std::strerror(errno) : "disk full";
  ::close(file_);
  file_ = -1;
  given_up_ = true;
  to_console_("cannot write " + path_ + ": " + reason);
}

void LogLines::attach(const std::string& path) {
  if (file_ >= 0 || given_up_) return;
  path_ = path;
  file_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC, 0644);
  if (file_ < 0) {
    given_up_ = true;
    to_console_("cannot open " + path + ": " + std::strerror(errno));
    return;
  }
  std::string all;
  for (const std::string& line : earlier_)
    all += line;
  earlier_.clear();
  if (!all.empty()) write_file(all);
}

}  // namespace muster::agent
