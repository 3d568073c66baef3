// SPDX-License-Identifier: Apache-2.0
//
// Ends of `muster run` before there is an agent that explains them: a command line that is refused,
// a program that is not there, a server that nobody reached. A pod's status shows these too.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "launcher/commands/run_job.h"
#include "proto/base/job.h"

namespace muster::launcher {

struct EarlyEnd {
  int exit_code = 2;
  std::string text;  // one line
};

// By a flag, a variable or a file.
inline EarlyEnd refused(std::string text) {
  return {2, std::move(text)};
}

// Writes --termination-log. `plan` may know nothing but its environment.
void note_early_end(const RunPlan& plan, const EarlyEnd& end);

// Says why, and notes it. Returns the exit code.
int end_early(const RunPlan& plan, const EarlyEnd& end);

}  // namespace muster::launcher
