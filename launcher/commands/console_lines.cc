// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <unistd.h>

#include "launcher/commands/commands.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

void say(std::string_view line) {
  // What a user's file or flag holds must not steer the terminal.
  std::string text = cat("muster: ", line);
  // A value of a megabyte is named by its ends; the line stays one that can be read.
  constexpr std::size_t kLongest = 2000;
  constexpr std::size_t kHead = 1200;
  constexpr std::size_t kTail = 400;
  if (text.size() > kLongest) {
    text = cat(text.substr(0, kHead), " ... ", text.substr(text.size() - kTail));
  }
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = '?';
  }
  text += '\n';
  write_all(STDERR_FILENO, text);
}

int refuse(std::string_view line) {
  say(line);
  return kExitUsage;
}

int refuse_surplus(std::string_view command, std::string_view word) {
  return refuse(cat("unexpected argument '", word, "'; see `muster ", command,
                    command.empty() ? "" : " ", "--help`"));
}

bool print(std::string_view text) {
  return write_all(STDOUT_FILENO, text);
}

}  // namespace muster::launcher
