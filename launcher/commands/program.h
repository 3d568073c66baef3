// SPDX-License-Identifier: Apache-2.0
//
// From the program's name on the command line to what will be executed, decided and checked
// before anything starts: a name that leads nowhere costs one line, and on a single node no
// rendezvous.
//
// Thread rule: any thread; looks at the file system, changes nothing.
#pragma once

#include <string>
#include <vector>

#include "launcher/commands/options.h"

namespace muster::launcher {

struct Program {
  std::string path;               // for execve; what could not be had, where argv is empty
  std::vector<std::string> argv;  // argv[0]: as typed, an interpreter's: its path
  // Where argv is empty: 127 (not found) or 126 (not executable), and why in one line.
  int exit_code = 0;
  std::string error;
  bool ok() const { return !argv.empty(); }
};

// Python programs (-m, *.py, *.pyz, a directory with __main__.py, a file that is neither
// executable nor ELF) run as `interpreter -u ...`; everything else as it is. A name without a
// slash that is a file in the current directory is that file, else PATH is searched.
// REQUIRES: options.program is not empty.
Program resolve_program(const RunOptions& options, const EnvironmentMap& environment);

}  // namespace muster::launcher
