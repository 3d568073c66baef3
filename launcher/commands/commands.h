// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of `muster`. Each takes the words after its name and returns the exit code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::launcher {

using Words = std::vector<std::string>;

int run_command(const Words& words);
int rendezvous_command(const Words& words);
int status_command(const Words& words);
int stop_command(const Words& words);
int scale_command(const Words& words);
int drain_command(const Words& words);
int restart_command(const Words& words);
int chaos_command(const Words& words);

inline constexpr int kExitUsage = 2;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitJoinTimeout = 75;
inline constexpr int kExitChaosUnfired = 79;

// One line for people on stderr: "muster: " before, a newline behind, in one write.
void say(std::string_view line);
// say(), and the exit code of a usage error.
int refuse(std::string_view line);
// refuse(), of a word that `command` has no use for.
int refuse_surplus(std::string_view command, std::string_view word);
// Text on stdout as it is. False: it could not be written.
bool print(std::string_view text);

}  // namespace muster::launcher
