// SPDX-License-Identifier: Apache-2.0
//
// What option_table says, for readers: `--help` and `--print-config`.
#pragma once

#include <string>

#include "launcher/commands/options.h"

namespace muster::launcher {

// The whole text of `muster run --help`, ending in a newline.
std::string run_help();

// One JSON object: every option with its value and the source of it, what follows from them
// (where the server is, every port that must be open), the program, and the notes.
// `slots`: workers on this node, resolved. `argv`: the program as it will be executed.
std::string print_config(const CommandLine& line, const RunOptions& options, std::uint32_t slots,
                         const std::vector<std::string>& argv);

}  // namespace muster::launcher
