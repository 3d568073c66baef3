// SPDX-License-Identifier: Apache-2.0
//
// Which of the failures of one generation came first (contracts §5). Called once all members
// have confirmed their stop or are lost, so nothing can be added any more: a report travels
// before its node's confirmation on the same stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/job.h"
#include "proto/base/messages.h"
#include "proto/base/time.h"

namespace muster::rendezvous {

// One failure as it reached the server.
struct Cause {
  Failure failure;
  Instant reported;         // when we learnt of it
  Instant happened;         // `reported` less the age that the agent measured; losses: last sign
  std::uint64_t order = 0;  // of the node's wait set; compares within one node only
  // It ended by a stop signal, which the agent itself received too: a stop, not a failure.
  bool agent_signaled = false;
};

struct Verdict {
  Cause first;
  std::vector<Failure> victims;  // the other failures, in the order of their reports
};

// Causes of different nodes closer than this cannot be put in order by time.
inline constexpr Duration kOrderDoubt = 50ms;

// nullopt for no causes. Rules: a lost node outranks exits elsewhere (its own exit outranks its
// loss, unless it was lost already when that happened); primaries before secondaries; within a
// node its wait set's order; between nodes time, and within kOrderDoubt evidence: the kernel's
// signal or OOM, then own non-zero exit, then abort, with `ambiguous` set. At most `victims_kept`
// victims are returned.
std::optional<Verdict> settle_first_cause(const std::vector<Cause>& causes,
                                          std::size_t victims_kept);

// A failed exit as a Failure. REQUIRES: not succeeded.
Failure to_failure(const WorkerExited& exited, const NodeName& node);

// The signal, or n for exit code 128+n, when it is one that asks a process to stop (HUP, INT,
// QUIT, TERM).
std::optional<int> stop_signal_of(const Failure& failure);

// False for what no lost connection does to a worker: the kernel's signals for a crash, SIGKILL
// and OOM, in an exit code of 128+n too, and starts that failed.
bool may_follow_a_lost_peer(const Failure& failure);

// Exit code of a run that ends by this failure (contracts §6).
int exit_code_of(const Failure& failure);

// "rank 1 on node b was killed by SIGSEGV".
std::string describe(const Failure& failure);

}  // namespace muster::rendezvous
