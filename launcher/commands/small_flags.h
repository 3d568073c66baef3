// SPDX-License-Identifier: Apache-2.0
//
// Flags of the small subcommands: a handful each, no variables (but those of credentials.h), no
// prefixes. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::launcher {

struct SmallFlag {
  std::string_view name;  // with dashes, without the leading two
  bool takes_value = false;
};

struct SmallLine {
  std::map<std::string, std::string> flags;  // by name; "" for those without value
  std::vector<std::string> rest;             // words that are no flags
  bool has(const std::string& name) const { return flags.contains(name); }
  // The value, or empty where the flag was not given.
  std::string get(const std::string& name) const;
};

// `command` names itself in messages. "--help" and "-h" are always known.
absl::StatusOr<SmallLine> parse_small(std::string_view command,
                                      const std::vector<std::string>& words,
                                      const std::vector<SmallFlag>& known);

}  // namespace muster::launcher
