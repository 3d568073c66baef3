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

#include "proto/base/failure.h"
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
  bool stops_agent = false;  // … one that its agent would stop on, had it come to it
  std::optional<Hang> hang;
  std::optional<Instant> spoke;  // its last words on stderr; nullopt: none lately
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
// signal or OOM, then own non-zero exit, then abort or SIGPIPE, with `ambiguous` set; of equals
// whose last words are all known, the first to speak. At most `victims_kept` victims are returned.
std::optional<Verdict> settle_first_cause(const std::vector<Cause>& causes,
                                          std::size_t victims_kept);

// It ended by a signal that asks a process to stop.
bool is_stop_signal(const Cause& cause);

// Exit code of a run that ends by this failure (contracts §6).
int exit_code_of(const Failure& failure);

// "rank 1 on node b was killed by SIGSEGV".
std::string describe(const Failure& failure);

}  // namespace muster::rendezvous
