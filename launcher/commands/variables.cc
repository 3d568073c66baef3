// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/variables.h"

#include <algorithm>
#include <array>
#include <map>

#include "agent/core/environment.h"
#include "launcher/commands/option_table.h"
#include "launcher/commands/text.h"
#include "proto/base/nearest.h"

namespace muster::launcher {
namespace {

// Of our own tests.
constexpr std::array<std::string_view, 3> kForTests{"MUSTER_TEST_", "MUSTER_SIM_",
                                                    "MUSTER_BIN_DIR"};

struct Known {
  std::vector<std::string> names;
  std::map<std::string, std::string> aliases;  // MUSTER_ with torchrun's name -> ours
};

Known known_names() {
  Known known;
  for (const OptionDef& option : option_table()) {
    known.names.push_back(muster_variable(option));
    const std::string pet = pet_variable(option);
    if (pet.empty()) continue;
    known.names.push_back(pet);
    const std::string alias = cat("MUSTER_", pet.substr(4));
    if (alias != known.names[known.names.size() - 2]) {
      known.aliases[alias] = known.names[known.names.size() - 2];
    }
  }
  known.names.emplace_back("PET_N_PROC_PER_NODE");  // see the parser
  return known;
}

std::string line_for(const std::string& name, const Known& known) {
  const bool pet = name.starts_with("PET_");
  const auto alias = known.aliases.find(name);
  std::string near = alias == known.aliases.end() ? std::string() : alias->second;
  if (near.empty()) {
    // Compared without what the whole family begins with, which would make everything near.
    const std::string_view family = pet ? "PET_" : "MUSTER_";
    std::vector<std::string> candidates;
    for (const std::string& candidate : known.names) {
      if (candidate.starts_with(family)) candidates.push_back(candidate.substr(family.size()));
    }
    near = nearest(std::string_view(name).substr(family.size()), candidates);
    if (!near.empty()) near = cat(family, near);
  }
  return cat(name, " is ignored: ", pet ? "torchrun has no such variable" : "it is no option",
             near.empty() ? "" : cat("; did you mean ", near, "?"));
}

}  // namespace

bool is_service_variable(std::string_view name, std::string_view value) {
  if (name.ends_with("_SERVICE_HOST") || name.find("_SERVICE_PORT") != std::string_view::npos) {
    return true;
  }
  // NAME_PORT=tcp://10.0.0.1:29400, NAME_PORT_29400_TCP, NAME_PORT_29400_TCP_ADDR.
  if (name.ends_with("_PORT") && value.find("://") != std::string_view::npos) return true;
  constexpr std::string_view kPort = "_PORT_";
  const std::size_t port = name.find(kPort);
  if (port == std::string_view::npos || port + kPort.size() == name.size()) return false;
  const char next = name[port + kPort.size()];
  return next >= '0' && next <= '9';
}

std::vector<std::string> unknown_variables(const EnvironmentMap& environment, bool pet_is_ignored) {
  constexpr std::size_t kMostLines = 8;
  const Known known = known_names();
  const auto is_known = [&](const std::string& name) {
    const auto has = [&name](const auto& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    return has(known.names) || has(agent::kVariablesOfWorkers) ||
           std::any_of(kForTests.begin(), kForTests.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
  };
  std::vector<std::string> lines;
  std::size_t more = 0;
  for (const auto& [name, value] : environment) {
    const bool pet = name.starts_with("PET_");
    if (!pet && !name.starts_with("MUSTER_")) continue;
    if ((pet && pet_is_ignored) || is_known(name) || is_service_variable(name, value)) continue;
    if (lines.size() < kMostLines) {
      lines.push_back(line_for(name, known));
    } else {
      ++more;
    }
  }
  if (more > 0) lines.push_back(cat("and ", more, " more MUSTER_ or PET_ variables are ignored"));
  return lines;
}

}  // namespace muster::launcher
