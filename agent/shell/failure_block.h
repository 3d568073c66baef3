// SPDX-License-Identifier: Apache-2.0
//
// The last thing a failed job shows: who failed first, with its last words, whom that took along,
// and where to look. Pure.
#pragma once

#include <string>

#include "proto/base/ids.h"
#include "proto/base/job.h"

namespace muster::agent {

// Several lines, each ended by '\n', the first "muster: job <id> failed". `logs`: the run's log
// folder; empty: none was written. `exit_code`: of this process.
std::string failure_block(const JobId& job, const Outcome& outcome, int exit_code,
                          const std::string& logs);

// The same of a node that ends before the job's outcome is known, for a reason of its own (`text`)
// that a rank's failure brought up.
std::string unfit_block(const JobId& job, const NodeName& node, const std::string& text,
                        const Failure& cause, int exit_code, const std::string& logs);

// "ended by SIGSEGV (invalid memory access)", "exit code 3", "could not start: …".
std::string failure_words(const Failure& failure);

// "rank 5 (node b, local rank 1, pid 4711)" or "node b".
std::string failure_place(const Failure& failure);

}  // namespace muster::agent
