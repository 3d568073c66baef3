// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/node_facts.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sys/random.h>
#include <unistd.h>

#include <climits>

#include "launcher/commands/text.h"
#include "proto/base/check.h"

namespace muster::launcher {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

std::string user_name(const EnvironmentMap& environment) {
  for (const char* name : {"USER", "LOGNAME"}) {
    const auto found = environment.find(name);
    if (found != environment.end() && !found->second.empty()) return found->second;
  }
  std::ifstream file("/etc/passwd");
  const std::string uid = std::to_string(getuid());
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() > 2 && fields[2] == uid && !fields[0].empty()) return std::string(fields[0]);
  }
  return "uid " + uid;
}

EnvironmentMap read_environment() {
  EnvironmentMap environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    // The first of two entries with one name is what getenv() finds.
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) {
    MUSTER_CHECK(errno == EINTR);
  }
  return number;
}

std::string random_hex(std::size_t digits) {
  std::string text;
  while (text.size() < digits) {
    std::uint64_t bits = random_number();
    for (int i = 0; i < 16 && text.size() < digits; ++i, bits >>= 4U) {
      text += "0123456789abcdef"[bits & 15U];
    }
  }
  return text;
}

std::uint64_t start_ticks(std::int64_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text, '\0');  // all of it
  // The name in parentheses may hold anything; fields are counted behind its last ')'.
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos) return 0;
  const std::vector<std::string_view> fields =
      split(std::string_view(text).substr(std::min(text.size(), close + 2)), ' ');
  constexpr std::size_t kStartTime = 19;  // field 22, counted from the state (3)
  if (fields.size() <= kStartTime || fields[0] == "Z" || fields[0] == "X") return 0;
  std::uint64_t ticks = 0;
  const std::string_view field = fields[kStartTime];
  std::from_chars(field.data(), field.data() + field.size(), ticks);
  return ticks;
}

}  // namespace muster::launcher
