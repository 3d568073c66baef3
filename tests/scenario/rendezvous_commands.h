// SPDX-License-Identifier: Apache-2.0
//
// What the commands of rendezvous_*.txt say of jobs, faults and ends of workers. What a command
// does not name stays as it is.
#pragma once

#include "proto/base/job.h"
#include "proto/base/messages.h"
#include "tests/scenario/runner.h"

namespace muster::scenario {

// job nnodes=1:2 restarts=3 …
void read_job(Command& command, JobSpec& spec);
// fault do=kill generation=0 …: one more.
void read_fault(Command& command, JobSpec& spec);
// exited LABEL code= | signal= | exec= …: all but rank, local rank and pid of one that ran.
void read_exit(Command& command, WorkerExited& exited);

}  // namespace muster::scenario
