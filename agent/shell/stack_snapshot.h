// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says of where a process and those below it stand: per thread its state, the
// kernel function that it waits in, its system call and its kernel stack.
//
// Thread rule: any thread. Reads small files of /proc that no other process can hold up for long;
// not cmdline and environ, which wait for a process that is stuck.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace muster::agent {

// `pid` first, then what is below it; at most 64.
std::vector<pid_t> processes_of(pid_t pid);

// Lines about each thread (at most 256) of a process. Empty: there is no such process.
std::string snapshot_of(pid_t pid, const std::string& proc = "/proc");

// Whether its program is a Python interpreter.
bool is_python(pid_t pid, const std::string& proc = "/proc");

}  // namespace muster::agent
