// SPDX-License-Identifier: Apache-2.0
//
// What of a run must survive its server's death, as data. The machine hands out what a step
// changed (Persist), the journal keeps the newest of each part, and a server that starts again is
// given all of it back (JournalRead). Times are wall-clock, since no other clock survives.
//
// The parts are apart because they change at different rates: a join or an exit rewrites the job
// and one node, never all nodes; the generation's ranks are written once, at its commit.
//
// What is not here, on purpose: streams, a round that is being prepared (it is prepared anew),
// the last call (it begins anew) and heartbeats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/events.h"
#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/messages.h"

namespace muster::rendezvous {

using WallTime = std::int64_t;  // microseconds since 1970, UTC

enum class Phase : std::uint8_t {
  kForming,
  kPreparing,  // recorded as kForming
  kStarting,
  kRunning,
  kStopping,
  kBackoff,
  kRecovering,
  kFinished
};

enum class StopWhy : std::uint8_t { kFailure, kLeave, kGrow, kRequested, kStateLost, kDrain };

// Why workers are being stopped; kept until the next generation is committed.
struct StopRecord {
  StopWhy why = StopWhy::kFailure;
  bool planned = false;
  std::string reason;
  std::optional<WallTime> began;  // absent: written before it was kept
  bool operator==(const StopRecord&) const = default;
};

// When the failure that is being recovered from happened, was reported, and all had stopped.
struct RecoveryRecord {
  WallTime failed = 0;
  WallTime detected = 0;
  WallTime stopped = 0;
  bool operator==(const RecoveryRecord&) const = default;
};

// A node that was the first cause of failures, and what it came to.
struct OffenderRecord {
  NodeName node;
  std::vector<WallTime> causes;
  std::uint32_t times = 0;
  std::optional<WallTime> until;
  bool operator==(const OffenderRecord&) const = default;
};

// How many nodes a job has.
struct NodeRange {
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  bool operator==(const NodeRange&) const = default;
};

// An agent that an operator sent away. Of a node too: after an adoption two nodes may have the same
// incarnation, one from each server.
using AgentId = std::pair<NodeName, Incarnation>;

// A recovery that is complete but for the first progress of the new generation.
struct RecoveredRecord {
  event::Recovered event;
  WallTime failed = 0;
  bool operator==(const RecoveredRecord&) const = default;
};

// What heartbeats change. Written along with everything else, never for its own sake.
struct ProgressRecord {
  bool reports_steps = false;
  std::uint64_t best_step = 0;
  std::uint64_t best_checkpoint = 0;
  std::uint32_t failures_in_row = 0;
  std::uint32_t losses_in_row = 0;
  std::uint32_t idle_generations = 0;
  bool rose = false;             // the generation committed last made progress
  std::optional<WallTime> kept;  // a checkpoint of the running generation last rose
  bool operator==(const ProgressRecord&) const = default;
};

struct JobRecord {
  JobSpec spec;
  NodeRange asked;  // as its agents bring it, where an operator has scaled the job
  RunId run;
  std::vector<RunId> aliases;  // runs of ours that turned out to be `run`
  ServerEpoch epoch = 0;
  Phase phase = Phase::kForming;
  Generation generation = kNoGeneration;  // committed last
  Incarnation last_incarnation = 0;
  bool state_lost = false;   // a server adopted this run from its agents
  bool server_left = false;  // its server told all agents to end without an outcome
  WallTime started = 0;

  // The budget.
  std::uint32_t restarts_used = 0;
  std::vector<WallTime> charges;  // only with a window; newest last
  std::set<std::uint32_t> faults_fired;
  std::vector<OffenderRecord> offenders;  // by node

  // The next generation.
  FormReason reason = FormReason::kStart;
  bool wait_for_max = true;
  bool reforming = false;
  WallTime round_opened = 0;
  std::optional<WallTime> join_until;     // where an order has given more time than --join-timeout
  std::optional<WallTime> backoff_until;  // kBackoff
  std::optional<StopRecord> stop;
  std::optional<WallTime> parted;  // first sign that a node leaves the generation
  std::optional<RecoveryRecord> recovery;
  std::optional<RecoveredRecord> recovered;

  std::optional<WallTime> fenced;  // lost nodes may run workers until then
  std::optional<WallTime> grown;   // when the last growth was ordered

  // The generation committed last.
  bool life_ended = false;
  WallTime committed = 0;
  std::optional<WallTime> running;  // all workers were exec'd

  bool ever_execed = false;
  Duration kept{0};  // running time whose progress was kept, of ended generations
  std::optional<Failure> last_failure;
  std::vector<std::pair<WallTime, int>> leaves;  // with their signals, newest last
  int last_leave_signal = 0;
  std::optional<std::string> stop_requested_by;
  std::map<AgentId, std::string> drained;  // and by whom
  std::optional<Outcome> outcome;
  std::optional<WallTime> finished;
  bool operator==(const JobRecord&) const = default;
};

// The generation committed last, as it was published.
struct LifeRecord {
  Generation generation = kNoGeneration;
  Attempt attempt = 0;
  std::vector<MemberRanks> ranks;
  std::string master_addr;
  std::uint16_t master_port = 0;
  bool operator==(const LifeRecord&) const = default;
};

struct MemberRecord {
  NodeFacts facts;
  std::string observed_addr;
  Incarnation incarnation = 0;
  Role role = Role::kMember;
  bool leaving = false;
  Generation work = kNoGeneration;
  bool works = false;             // workers of `work` may be alive there
  std::vector<std::string> past;  // attempts of the scheduler at its place before it
  bool returned = false;          // from a server before, whose state is lost
  bool operator==(const MemberRecord&) const = default;
};

// What a scheduler tried at the place of a node that is gone.
struct AttemptsRecord {
  std::optional<std::uint32_t> node_rank;  // the place, where it was asked for
  std::string scheduler_job;               // of the last one, as NodeFacts has it
  std::optional<std::uint32_t> scheduler_restart;
  std::vector<std::string> attempts;  // oldest first; few are kept
  bool operator==(const AttemptsRecord&) const = default;
};

struct CauseRecord {
  Failure failure;
  WallTime reported = 0;
  WallTime happened = 0;
  std::uint64_t order = 0;
  bool agent_signaled = false;
  bool stops_agent = false;
  std::optional<Hang> hang;
  std::optional<WallTime> spoke;
  bool operator==(const CauseRecord&) const = default;
};

// Attempts at one place that are remembered: older ones do not come back.
inline constexpr std::size_t kAttemptsKept = 8;

// A node of the run: a member, or one that is gone but took part in the last generation or may ask
// for the outcome.
struct NodeRecord {
  NodeName node;
  std::optional<MemberRecord> member;  // absent: gone
  std::optional<AttemptsRecord> gone;  // … and the scheduler's attempts there
  // Its part in the generation committed last.
  bool started = false;               // its WorkersStarted came
  std::vector<std::uint32_t> exited;  // ranks whose end was reported, ascending
  std::vector<std::uint32_t> done;    // of these: exited 0, not torn down
  std::vector<CauseRecord> causes;    // in the order of their reports
  std::vector<Failure> torn_down;
  bool operator==(const NodeRecord&) const = default;
};

// A whole run, as a journal gives it back.
struct RunRecord {
  JobRecord job;
  ProgressRecord progress;
  std::optional<LifeRecord> life;
  std::vector<NodeRecord> nodes;  // by name
};

// What one step changed of a run.
struct Persist {
  JobRecord record;
  ProgressRecord progress;
  std::optional<LifeRecord> life;  // replaces the one before
  std::vector<NodeRecord> nodes;   // replace those of the same name
  std::vector<NodeName> removed;   // nodes of which nothing need be known any more
};

// The run as it is after `change`. A journal that keeps rows does the same row by row.
void apply(const Persist& change, RunRecord& run);

}  // namespace muster::rendezvous
