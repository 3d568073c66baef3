// SPDX-License-Identifier: Apache-2.0
//
// A `muster run` line, read as the command reads it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/commands/options.h"
#include "launcher/commands/text.h"

namespace muster::launcher {

using Words = std::vector<std::string>;

struct Result {
  bool ok = false;
  std::string error;
  CommandLine line;
  RunOptions options;
};

inline Result resolve(Words words, const EnvironmentMap& environment = {}, bool program = true) {
  if (program) words.emplace_back("/bin/true");
  Result result;
  absl::StatusOr<CommandLine> line = parse_command_line(words, environment);
  if (!line.ok()) {
    result.error = cat(line.status().message());
    return result;
  }
  result.line = *line;
  absl::StatusOr<RunOptions> options = resolve_options(result.line, environment);
  if (!options.ok()) {
    result.error = cat(options.status().message());
    return result;
  }
  result.options = *options;
  result.ok = true;
  return result;
}

inline std::string error_of(Words words, const EnvironmentMap& environment = {}) {
  const Result result = resolve(std::move(words), environment);
  CHECK_FALSE(result.ok);
  return result.error;
}

inline bool has_note(const Result& result, const std::string& part) {
  for (const std::string& note : result.line.notes) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

inline std::string source(const Result& result, std::string_view option) {
  return result.line.settings[option_index(option)].source;
}

}  // namespace muster::launcher
