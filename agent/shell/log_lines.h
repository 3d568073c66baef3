// SPDX-License-Identifier: Apache-2.0
//
// Muster's own lines for people: on stderr, each beginning "muster: ", those of the chosen level
// and above; and all of them, with time and node, in agent.log once the run's folder is there.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent.h"

namespace muster::agent {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

class LogLines {
 public:
  // `to_console` takes one line without prefix and newline (Console::say).
  LogLines(LogLevel level, NodeName node, std::function<void(std::string_view)> to_console);
  ~LogLines();
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // Text of several lines becomes several lines. Control characters but tab are shown as '?'.
  void say(Severity severity, std::string_view text);
  // The same for agent.log alone.
  void record(Severity severity, std::string_view text);

  // What only --log-level debug shows, on the console (with the time) and in agent.log. An empty
  // text is no line.
  bool debugs() const { return level_ == LogLevel::kDebug; }
  void debug(std::string_view text);

  // Appends to `path` from now on, first what was said before (the last 200 lines). A file that
  // cannot be opened or written is given up with one warning on the console.
  void attach(const std::string& path);

 private:
  void add(const char* word, std::string_view text, bool on_console);
  void keep(std::string line);
  void write_file(const std::string& lines);

  LogLevel level_;
  NodeName node_;
  std::function<void(std::string_view)> to_console_;
  std::string path_;
  int file_ = -1;
  bool given_up_ = false;
  std::vector<std::string> earlier_;
};

}  // namespace muster::agent
