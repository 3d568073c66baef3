// SPDX-License-Identifier: Apache-2.0
//
// How a worker ended, decoded once, and what exit code an outcome becomes. Pure functions; any
// thread.
#pragma once

#include "agent/core/agent.h"
#include "proto/base/job.h"

namespace muster::agent {

// The pair that waitid(2) leaves in siginfo_t, as plain numbers. A `wait_code` other than
// CLD_EXITED, CLD_KILLED and CLD_DUMPED cannot come from a wait for WEXITED and is a CHECK.
ExitStatus decode_wait(int wait_code, int wait_status);

// An exec that failed with `error` (an errno value); `path` names the program.
ExitStatus exec_failed(int error, const std::string& path, const std::string& reason);

// The exit code of this process for the job's outcome: kFlat turns every code that a worker
// chose into 1 and leaves Muster's own codes as they are.
int exit_code_of(const Outcome& outcome, ExitCodeMode mode);

}  // namespace muster::agent
