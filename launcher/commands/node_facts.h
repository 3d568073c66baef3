// SPDX-License-Identifier: Apache-2.0
//
// What this process and its machine are called, and fresh random names. No look-up leaves the
// machine.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/commands/options.h"

namespace muster::launcher {

std::string host_name();
std::string boot_id();
// Of USER or LOGNAME, else by /etc/passwd, else "uid 0"; no directory service is asked.
std::string user_name(const EnvironmentMap& environment);

// The process's environment as data.
EnvironmentMap read_environment();

// From the kernel; never fails.
std::uint64_t random_number();
std::string random_hex(std::size_t digits);

// Start time of a process in clock ticks since boot: with the pid it names one process for as
// long as the machine runs. 0: no such process.
std::uint64_t start_ticks(std::int64_t pid);

}  // namespace muster::launcher
