// SPDX-License-Identifier: Apache-2.0
//
// What option_table says, for shells and for man: completion scripts of bash and zsh, and the
// manual page muster-run(1).
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::launcher {

// Scripts that `source` takes. `commands`: the subcommands of `muster`.
std::string bash_completion(const std::vector<std::string>& commands);
std::string zsh_completion(const std::vector<std::string>& commands);

// In man(7)'s macros.
std::string run_manual(std::string_view version);

}  // namespace muster::launcher
