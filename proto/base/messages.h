// SPDX-License-Identifier: Apache-2.0
//
// What agents and the server say to each other, as both machines see it. The wire form is
// proto/muster/v1/rendezvous.proto; proto/wire converts and validates at the border. An embedded
// server and its own agent exchange these structs directly.
//
// One life of a member, message by message (A agent, S server):
//
//   A Join            -> S JoinAccepted (or JoinRefused; or Outcome, if this run is over)
//   S Waiting         whenever the picture changes while a round is open
//   S Prepare(g, a)   -> A PrepareAnswer(g, a), with a held master port from group rank 0
//   S Commit(g, a)    -> A spawns; A WorkersStarted(g) once every exec has succeeded
//   A WorkerExited(g) for every worker that ends, good or bad, at once, in the order seen
//   S StopOrder(g)    -> A StopConfirmed(g) once no worker of g is left on the node
//   S Outcome         -> A OutcomeSeen, then the agent ends
//   A Leave           when the agent itself is told to stop; S takes it out of the job
//
// Rules. Each message travels with an Envelope. The server answers a message whose envelope is
// not current with Stale, naming what it knows; an agent drops a stale ServerMessage and logs it.
// Messages of one stream are handled in the order sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/base/events.h"
#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/time.h"

namespace muster {

// ---------------------------------------------------------------- agent to server

// What an agent already lived through; presented when it attaches again.
struct Reattach {
  RunId run;
  Incarnation incarnation = 0;
  Generation generation = kNoGeneration;  // highest it was committed to
  bool workers_running = false;           // workers of `generation` are alive here
  std::vector<std::uint32_t> ranks_done;  // global ranks of this node that exited 0
  std::uint32_t restarts_used = 0;        // highest it was ever told
  ServerEpoch epoch = 0;
  bool leaving = false;  // it was told to stop: its Leave follows
  bool operator==(const Reattach&) const = default;
};

// First message of every stream.
struct Join {
  JobSpec spec;
  NodeFacts node;
  std::optional<Reattach> reattach;
  bool operator==(const Join&) const = default;
};

struct RankProgress {
  std::uint32_t rank = 0;
  std::uint64_t step = 0;
  std::optional<std::uint64_t> checkpoint_step;
  Duration age{0};  // since `step` last changed, by the agent's clock
  bool operator==(const RankProgress&) const = default;
};

struct Heartbeat {
  std::uint64_t sequence = 0;          // echoed; the agent keeps the send time of each
  std::vector<RankProgress> progress;  // ranks that report
  bool suspended = false;              // its workers are stopped (SIGTSTP) until somebody resumes
  bool operator==(const Heartbeat&) const = default;
};

struct PrepareAnswer {
  Attempt attempt = 0;
  bool accepted = false;
  std::uint16_t master_port = 0;  // group rank 0 only
  std::string reason;             // when not accepted
  bool operator==(const PrepareAnswer&) const = default;
};

struct StartedWorker {
  std::uint32_t rank = 0;
  std::int64_t pid = 0;
  bool operator==(const StartedWorker&) const = default;
};

struct WorkersStarted {
  std::vector<StartedWorker> workers;
  Duration spawn{0};  // Commit received to last exec
  bool operator==(const WorkersStarted&) const = default;
};

struct WorkerExited {
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::int64_t pid = 0;  // 0: never existed (exec failed)
  ExitStatus status;
  bool torn_down = false;       // ended after our own stop signal
  bool oom = false;             // the kernel's OOM killer took it
  bool agent_signaled = false;  // ended by the stop signal the whole step received
  std::uint64_t order = 0;      // order of the wait set on this node, rising over its life
  Duration age{0};              // exit observed, or failure begun, to message sent
  Duration run{0};
  std::uint64_t max_rss_bytes = 0;
  std::string stderr_tail;   // failures only
  std::string error_file;    // failures only: text of error.json
  bool secondary = false;    // error.json says "secondary": true
  bool parting = false;      // torn_down, because its node leaves
  bool stops_agent = false;  // ended by a signal on which its agent would stop
  std::optional<Hang> hang;
  std::string stacks;             // path of its stacks on its node, captured before it was killed
  std::optional<Duration> spoke;  // last words on stderr to message sent; nullopt: none lately
  bool operator==(const WorkerExited&) const = default;
};

struct StopConfirmed {
  bool detached = false;  // mode detach: workers left the generation but live on
  bool operator==(const StopConfirmed&) const = default;
};

struct Leave {
  int signal = 0;      // what the agent was told to stop by; 0: by other means
  std::string reason;  // in words
  Duration age{0};     // since it was told so, by the agent's clock
  bool operator==(const Leave&) const = default;
};

struct ChaosFired {
  std::uint32_t fault_index = 0;
  std::optional<std::uint32_t> rank;
  bool operator==(const ChaosFired&) const = default;
};

struct OutcomeSeen {
  bool operator==(const OutcomeSeen&) const = default;
};

using AgentBody = std::variant<Join, Heartbeat, PrepareAnswer, WorkersStarted, WorkerExited,
                               StopConfirmed, Leave, ChaosFired, OutcomeSeen>;
struct AgentMessage {
  Envelope envelope;
  AgentBody body;
  bool operator==(const AgentMessage&) const = default;
};

// ---------------------------------------------------------------- server to agent

enum class Role : std::uint8_t { kMember, kSpare };

struct JoinAccepted {
  std::string server_instance;  // random id of this server process
  std::string observed_addr;    // the address the server saw
  Role role = Role::kMember;
  JobPolicy policy;  // the job's; replaces the agent's own
  bool operator==(const JoinAccepted&) const = default;
};

struct JoinRefused {
  enum class Why : std::uint8_t {
    kOtherJob,
    kOtherProgram,
    kOtherNodes,
    kOtherFaultPlan,
    kDuplicateName,
    kDuplicateNodeRank,
    kFull,
    kNotAllowed,
    kInvalid,
    kNotYet  // the agent is to come again
  };
  Why why = Why::kInvalid;
  std::string text;  // names the holder: host, pid, job
  int exit_code = 2;
  bool operator==(const JoinRefused&) const = default;
};

// Why no generation runs, or why one runs without this node, as data.
struct Waiting {
  enum class Why : std::uint8_t {
    kBelowMin,
    kLastCall,
    kStopping,
    kBackoff,
    kPreparing,
    kRecovering,
    kLate,   // a generation below MAX runs; the node is taken in when the job forms anew
    kSpare,  // a generation of MAX nodes runs without it
    kQuarantined,
    kFenced  // a lost node may still run workers of the old generation
  };
  Why why = Why::kBelowMin;
  std::uint32_t min_nodes = 0;
  std::uint32_t max_nodes = 0;
  std::vector<NodeName> joined;  // the first 1024 by name
  std::uint32_t missing = 0;     // to reach min_nodes
  Duration remaining{0};         // until the next decision, where there is one
  std::string obstacle;          // what a node said that stands in the way, in words
  bool operator==(const Waiting&) const = default;
};

struct Prepare {
  Attempt attempt = 0;
  Assignment assignment;  // the receiver is group rank 0: hold a master port
  bool operator==(const Prepare&) const = default;
};

struct Commit {
  Attempt attempt = 0;
  std::uint16_t master_port = 0;
  bool operator==(const Commit&) const = default;
};

enum class StopMode : std::uint8_t { kStop, kDetach };

struct StopOrder {
  StopMode mode = StopMode::kStop;
  bool planned = false;  // planned: stop file first (contracts §3); failures: signal at once
  std::string reason;
  bool operator==(const StopOrder&) const = default;
};

struct HeartbeatAck {
  std::uint64_t sequence = 0;
  bool operator==(const HeartbeatAck&) const = default;
};

// Something that happened to the job; the agent writes it to its event file and, for some, a
// console line. GenerationRunning starts the clock of `after` faults, and is told again, with its
// age, on a new stream: the old one may have broken before it was read.
struct JobEventNotice {
  JobEvent event;
  Duration age{0};  // since it happened
  bool operator==(const JobEventNotice&) const = default;
};

struct OutcomeNotice {
  Outcome outcome;
  bool operator==(const OutcomeNotice&) const = default;
};

struct Evicted {
  std::string reason;
  bool drained = false;  // on an operator's wish, after its workers had stopped
  bool operator==(const Evicted&) const = default;
};

// Answer to a message that is not current. `known` is what the server holds now.
struct Stale {
  std::string what;  // name of the message refused
  Envelope known;
  bool operator==(const Stale&) const = default;
};

struct ServerLeaving {
  std::string reason;
  bool operator==(const ServerLeaving&) const = default;
};

using ServerBody =
    std::variant<JoinAccepted, JoinRefused, Waiting, Prepare, Commit, StopOrder, HeartbeatAck,
                 JobEventNotice, OutcomeNotice, Evicted, Stale, ServerLeaving>;
struct ServerMessage {
  Envelope envelope;
  ServerBody body;
  bool operator==(const ServerMessage&) const = default;
};

}  // namespace muster
