// SPDX-License-Identifier: Apache-2.0
//
// What the command lines of muster-train and of its subcommands have in common.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace muster::runtime {

// "muster-train: TEXT" on standard error, in one piece.
void say(const std::string& text);

// -1: go on; else the exit code: help or version was printed, or what is wrong was said. Dashes
// and underscores are the same in a flag's name. `also_known`: words that are no flags of `app`
// but may have been meant.
int parse_command_line(CLI::App& app, std::vector<std::string> arguments,
                       const std::vector<std::string>& also_known = {});

}  // namespace muster::runtime
