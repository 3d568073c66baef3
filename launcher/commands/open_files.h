// SPDX-License-Identifier: Apache-2.0
//
// Open files that this process needs for its workers, against the limits it was started with.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <sys/resource.h>

#include <absl/status/status.h>

namespace muster::launcher {

// What the agent of `slots` workers may have open at once.
std::uint64_t open_files_needed(std::uint32_t slots);

// Numbers that open files it was started with take beyond the standard three; 0: none, or it cannot
// be told.
std::uint64_t open_files_inherited();

// An error where not even the hard limit allows it beside the `inherited` ones; the message names
// the numbers.
absl::Status check_open_files(std::uint32_t slots, std::uint64_t inherited, const rlimit& limit);

// Raises this process's own soft limit as far as it needs and may: for its workers and, where it
// may host the server, for `nodes` others. Workers get the limit of the start back.
void raise_open_files(std::uint32_t slots, std::uint32_t nodes);

}  // namespace muster::launcher
