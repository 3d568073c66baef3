// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous machine: the one authority over who is in a generation, which rank everyone
// has, what a failure costs and when a job is over. Pure: no clock, socket, thread or file.
//
// The host's duties (see launcher/rendezvous/shell):
//   1. feed every fact as an Event with a monotonic `now`, one at a time;
//   2. carry out the returned actions in order; a Persist must be durable before any later action
//      of the same list leaves the process;
//   3. call step(Tick{}, now) at next_deadline();
//   4. say HostStalled where it stood still and its `now` does not show it.
//
// Invariants (the simulator checks them):
//   1. ranks of a published generation are 0..n-1, each once, the same in every Prepare;
//   2. no Commit for g+1 before every member of g confirmed its stop or is lost;
//   3. every Join gets exactly one JoinAccepted, JoinRefused, Evicted or OutcomeNotice;
//   4. generation numbers, incarnations and restarts_used never fall;
//   5. a run has one Outcome, and it never changes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/rendezvous/core/operator.h"
#include "launcher/rendezvous/core/record.h"
#include "launcher/rendezvous/core/recoveries.h"
#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/messages.h"
#include "proto/base/rng.h"
#include "proto/base/time.h"

namespace muster::rendezvous {

// ------------------------------------------------------------------ events: facts, past tense

struct AgentSaid {
  SessionId session = 0;
  std::string peer_addr;  // numeric address the server saw; empty for an in-process session
  AgentMessage message;
};
struct StreamLost {
  SessionId session = 0;
};
// An operator asked for something. `request` is answered by exactly one ReplyOperator.
struct OperatorAsked {
  std::uint64_t request = 0;
  JobId job;  // empty: the only one there is
  std::string by;
  Order order = StopJob{};
};
// The process that hosts this server was told to end (signal) while jobs may be running.
struct ServerStopping {
  std::string reason;
};
// The host's strand stood still for `by`, a time that its `now` leaves out. What was sent meanwhile
// has not been read yet, and agents may have given their streams up.
struct HostStalled {
  Duration by{0};
};
// This server started with what an earlier one wrote. The first event, or none.
struct JournalRead {
  std::vector<RunRecord> runs;  // older runs of a job before newer ones
};
struct Tick {};

using Event = std::variant<AgentSaid, StreamLost, OperatorAsked, ServerStopping, HostStalled,
                           JournalRead, Tick>;

// ------------------------------------------------------------------ actions: orders, in order

struct Send {
  SessionId session = 0;
  ServerMessage message;
};
// Close a stream once everything sent to it before has left.
struct CloseSession {
  SessionId session = 0;
};
// A run that nobody asks for any more: the journal may drop it.
struct Forget {
  JobId job;
  RunId run;
};
struct Emit {
  JobId job;
  RunId run;
  JobEvent event;
};
// The key space of (job, generation) begins / ends; waiters of an ended one are answered stale.
struct OpenStore {
  JobId job;
  Generation generation = kNoGeneration;
};
struct CloseStore {
  JobId job;
  Generation generation = kNoGeneration;
};
struct ReplyOperator {
  std::uint64_t request = 0;
  OrderAnswer answer;
};
// Every reachable member and spare has the outcome: a hosting process may end now.
struct JobOver {
  JobId job;
  RunId run;
  Outcome outcome;
};

using Action = std::variant<Send, CloseSession, Persist, Forget, Emit, OpenStore, CloseStore,
                            ReplyOperator, JobOver>;

// What a journal does with a step's actions, by the plainest means: all of its Persists and
// Forgets, in order. `journal` has older runs of a job before newer ones.
void write_down(const std::vector<Action>& actions, std::vector<RunRecord>& journal);

// ------------------------------------------------------------------ view: state as data

struct MemberView {
  NodeName node;
  std::string host;
  std::string addr;
  std::uint32_t slots = 0;
  Role role = Role::kMember;
  Incarnation incarnation = 0;
  bool connected = false;
  bool leaving = false;              // told to stop: its part in the job is over
  bool suspended = false;            // its workers are stopped (SIGTSTP) until somebody resumes
  std::optional<MemberRanks> ranks;  // in the current generation
  Duration heartbeat_age{0};
  std::vector<RankProgress> progress;
  std::uint32_t gpus = 0;
  std::string gpu;  // models and driver
  bool operator==(const MemberView&) const = default;
};

struct JobView {
  JobSpec spec;  // with the numbers of nodes that hold now
  RunId run;
  ServerEpoch epoch = 0;
  Phase phase = Phase::kForming;
  Waiting waiting;  // meaningful before kStarting
  Generation generation = kNoGeneration;
  std::uint32_t world_size = 0;
  std::string master_addr;
  std::uint16_t master_port = 0;
  std::uint32_t restarts_used = 0;
  std::vector<MemberView> members;
  std::optional<Failure> last_failure;
  std::optional<Outcome> outcome;
  Duration age{0};     // since job_started
  double goodput = 0;  // share of that in which workers ran, less what was lost
  RecoverySummary recoveries;
  bool operator==(const JobView&) const = default;
};

struct Limits {
  std::size_t jobs = 1024;
  std::size_t members = 16384;      // per job, spares included
  std::uint32_t ranks = 1U << 20U;  // per job: what messages can count
  std::size_t failures_kept = 64;   // victims remembered of one generation
  Duration outcome_kept = 1h;       // how long a finished run answers those who ask late
};

struct Options {
  std::string server_instance;         // random id of this server process
  std::optional<JobId> only_job;       // embedded servers serve this one job and refuse others
  std::string holder;                  // "host gpu-1, pid 42, user ann": names us in refusals
  std::int64_t unix_us_at_origin = 0;  // wall clock at Instant{0}: only for run ids
  Limits limits;
};

class Rendezvous {
 public:
  Rendezvous(Options options, Rng rng);
  ~Rendezvous();
  Rendezvous(Rendezvous&&) noexcept;
  Rendezvous& operator=(Rendezvous&&) noexcept;

  // Consumes one event and returns what the host must do, in order. Never fails and never blocks.
  // REQUIRES: now >= the `now` of every earlier call.
  [[nodiscard]] std::vector<Action> step(const Event& event, Instant now);

  // Earliest instant at which step(Tick{}, t) may do something; nullopt: nothing pending.
  [[nodiscard]] std::optional<Instant> next_deadline() const;

  // What a journal that had carried out every Persist and Forget would hold; for the simulator.
  [[nodiscard]] std::vector<RunRecord> records() const;
  // Members with a stream, as view() shows them: what the simulator asks after every step.
  [[nodiscard]] std::size_t connected() const;

  // The least --node-timeout of a job that is not over; nullopt: there is none.
  [[nodiscard]] std::optional<Duration> shortest_node_timeout() const;

  // All jobs as data, ordered by job id; ages are relative to `now`.
  [[nodiscard]] std::vector<JobView> view(Instant now) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::rendezvous
