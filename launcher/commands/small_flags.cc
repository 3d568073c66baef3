// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/small_flags.h"

#include <algorithm>

#include <absl/status/status.h>

#include "launcher/commands/options.h"
#include "launcher/commands/text.h"
#include "proto/base/nearest.h"

namespace muster::launcher {

std::string SmallLine::get(const std::string& name) const {
  const auto found = flags.find(name);
  return found == flags.end() ? std::string() : found->second;
}

absl::StatusOr<SmallLine> parse_small(std::string_view command,
                                      const std::vector<std::string>& words,
                                      const std::vector<SmallFlag>& known) {
  SmallLine line;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-h" || word == "--help") {
      line.flags["help"] = "";
      continue;
    }
    if (!word.starts_with("-") || word == "-") {
      line.rest.push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    const auto found = std::find_if(known.begin(), known.end(), [&](const SmallFlag& flag) {
      return name == cat("--", flag.name);
    });
    if (found == known.end()) {
      std::vector<std::string> names{"--help"};
      for (const SmallFlag& flag : known)
        names.push_back(cat("--", flag.name));
      const std::string near = nearest(name, names);
      return absl::InvalidArgumentError(cat("unknown flag ", word.substr(0, equals),
                                            near.empty()
                                                ? cat("; `muster ", command, " --help` lists them")
                                                : cat("; did you mean ", near, "?")));
    }
    std::string value;
    if (equals != std::string::npos) {
      if (!found->takes_value) return absl::InvalidArgumentError(cat(name, " takes no value"));
      value = word.substr(equals + 1);
    } else if (found->takes_value) {
      if (i + 1 == words.size() || words[i + 1].starts_with("--")) {
        return absl::InvalidArgumentError(cat(name, " needs a value"));
      }
      value = words[++i];
    }
    if (found->takes_value && value.empty()) {
      return absl::InvalidArgumentError(cat(name, " needs a value"));
    }
    line.flags[std::string(found->name)] = value;
  }
  return line;
}

}  // namespace muster::launcher
