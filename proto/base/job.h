// SPDX-License-Identifier: Apache-2.0
//
// A job as data: what was asked for (JobSpec), who takes part (NodeFacts), what went wrong
// (Failure) and how it ended (Outcome). Plain structs; no protobuf, no JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/faults.h"
#include "proto/base/ids.h"
#include "proto/base/time.h"

namespace muster {

// When nodes that came late restart a job that runs below MAX.
enum class Grow : std::uint8_t { kNow, kCheckpoint, kNever };

// Whether a new generation waits for what a lost node may still run.
enum class Fence : std::uint8_t { kFast, kStrict };

// A node that is the first cause of `causes` failures within `window` sits out for `cooldown`, and
// twice as long each time after that.
struct Quarantine {
  std::uint32_t causes = 0;  // 0: off
  Duration window{0};
  Duration cooldown{0};
  bool operator==(const Quarantine&) const = default;
};

// The job-wide rules. Those of the member that created the job hold for all; defaults are those
// of the command line's help.
struct JobPolicy {
  std::uint32_t max_restarts = 0;               // charged restarts, job-wide
  std::optional<Duration> max_restarts_window;  // with a window: at most that many within it
  std::uint32_t max_node_losses = 3;            // free losses without progress, MIN < MAX only
  std::uint32_t max_no_progress = 0;            // generations without any; 0: off
  Quarantine quarantine;
  Duration restart_backoff_max = 30s;
  Grow grow = Grow::kNow;
  Duration grow_interval = 60s;             // between two growths, at least
  std::optional<std::uint32_t> max_spares;  // nodes that may wait above MAX; nullopt: all
  Fence fence = Fence::kFast;
  Duration join_timeout = 600s;
  Duration last_call = 30s;
  Duration stop_grace = 30s;  // first signal to SIGKILL, per worker
  Duration heartbeat = 1s;
  Duration node_timeout = 10s;
  Duration reconnect_grace = 500ms;
  Duration recovery_window = 30s;
  Duration server_grace = 60s;
  bool linger = false;  // the server stays until the job ends
  bool operator==(const JobPolicy&) const = default;
};

struct JobSpec {
  JobId job;
  std::uint32_t min_nodes = 1;  // 0 < min_nodes <= max_nodes
  std::uint32_t max_nodes = 1;
  std::string program;             // argv as one line, for people
  std::uint64_t program_hash = 0;  // hash of argv; members must agree
  JobPolicy policy;
  FaultPlan faults;
  bool operator==(const JobSpec&) const = default;
};

// One node as its agent describes it when it joins.
struct NodeFacts {
  NodeName name;
  std::string host;                        // host name, for people and for the rank order
  std::string advertise_addr;              // --advertise-addr; empty: the address the server saw
  std::string dialed_addr;                 // numeric address this agent reached the server at
  std::uint32_t slots = 1;                 // workers on this node
  std::optional<std::uint32_t> node_rank;  // only where given explicitly
  // Its place as a scheduler numbers the nodes of the job; orders the ranks of those without.
  std::optional<std::uint32_t> scheduler_index;
  // The scheduler's try at running that place; another one for the same place has replaced it.
  // Empty: it is not known.
  std::string scheduler_attempt;
  // Of schedulers that count: what is tried, and how often it was before. Only a higher count of
  // the same has replaced a lower one; without a count any other attempt has.
  std::string scheduler_job;
  std::optional<std::uint32_t> scheduler_restart;
  std::string boot_id;  // kernel's boot id
  std::int64_t agent_pid = 0;
  std::string user;
  bool hosts_server = false;  // this process also runs the rendezvous server
  std::uint32_t gpus = 0;     // that workers here can see
  std::string gpu;            // their models and driver, for people; may be empty
  bool operator==(const NodeFacts&) const = default;
};

// Why a generation is formed; the words of MUSTER_RESTART_REASON and generation_formed.reason.
enum class FormReason : std::uint8_t {
  kStart,
  kWorkerFailure,
  kNodeLost,
  kNodeJoined,
  kNodeLeft,
  kRequested,
  kPreempted,
  kStateLost
};

enum class FailureKind : std::uint8_t { kExit, kSignal, kHang, kOom, kSpawn, kNodeLost };

// How one worker process ended, decoded once.
struct ExitStatus {
  enum class Kind : std::uint8_t { kExited, kSignaled, kExecFailed };
  Kind kind = Kind::kExited;
  int value = 0;             // exit code, signal number, or errno of the failed exec
  bool core_dumped = false;  // kSignaled
  // kExecFailed: the path and the reason in words; else what the kernel said then, of devices and
  // of memory.
  std::string detail;
  bool succeeded() const { return kind == Kind::kExited && value == 0; }
  bool operator==(const ExitStatus&) const = default;
};

// A worker that made no progress, or said nothing, and was killed for that.
struct Hang {
  bool ambiguous = false;  // another worker may have been the one that hung; this stands for all
  bool stopped = false;    // the process was in state T
  std::optional<std::uint64_t> step;  // that it had reported
  bool operator==(const Hang&) const = default;
};

// One failed worker or lost node.
struct Failure {
  FailureKind kind = FailureKind::kExit;
  NodeName node;
  std::optional<std::uint32_t> rank;  // nullopt: the node itself (kNodeLost)
  std::optional<std::uint32_t> local_rank;
  std::optional<std::int64_t> pid;
  std::optional<int> exit_code;  // kExit; kSpawn: 126 or 127
  std::optional<int> signal;     // kSignal, kOom
  std::string detail;            // one line in words: spawn reason, why lost, what the kernel said
  std::string stderr_tail;       // last lines, already cut to 4 KiB
  std::string error_file;        // the worker's error.json text, if it wrote one
  bool secondary = false;        // error.json said "secondary": a victim of another
  bool ambiguous = false;        // another cause was too close to tell
  bool torn_down = false;        // a victim that ended after our own stop signal
  bool core_dumped = false;      // kSignal: the kernel wrote a core dump
  std::string stacks;            // path on its node of stacks captured before it was killed
  bool operator==(const Failure&) const = default;
};

enum class OutcomeKind : std::uint8_t {
  kSucceeded,
  kFailed,
  kStopped,
  kJoinTimeout,
  kNoProgress,
  kServerLost
};
enum class ExitClass : std::uint8_t {
  kSucceeded,
  kUsage,
  kWorker,
  kSignal,
  kStopped,
  kJoinTimeout,
  kServerLost,
  kUnfit,
  kNoProgress,
  kInternal
};

// The end of a run. Decided once, by the server; the same for every agent.
struct Outcome {
  OutcomeKind kind = OutcomeKind::kSucceeded;
  int exit_code = 0;  // as --exit-code worker; an agent with `flat` maps it itself
  ExitClass exit_class = ExitClass::kSucceeded;
  std::string text;  // one line in words (join time-out: who joined, how many missing)
  std::optional<Failure> first_cause;
  std::vector<Failure> victims;
  std::uint32_t restarts_used = 0;
  std::uint32_t max_restarts = 0;
  Duration duration{0};  // since job_started
  double goodput = 0;    // share of wall time in which workers ran and kept progress
  bool operator==(const Outcome&) const = default;
};

// One node of a published generation. Ranks [first_rank, first_rank + count).
struct MemberRanks {
  NodeName node;
  std::uint32_t group_rank = 0;
  std::uint32_t first_rank = 0;
  std::uint32_t count = 0;
  bool operator==(const MemberRanks&) const = default;
};

// What an agent needs to know of a generation to start its workers, less the master port.
struct Assignment {
  Generation generation = kNoGeneration;
  std::uint32_t world_size = 0;
  std::vector<MemberRanks> members;  // by group rank; group rank g is members[g]
  std::uint32_t group_rank = 0;      // of the receiving node
  std::string master_addr;           // address of group rank 0's node
  std::uint32_t restarts_used = 0;   // charged so far, job-wide
  std::uint32_t max_restarts = 0;
  FormReason reason = FormReason::kStart;
  std::vector<ArmedFault> faults;  // those that hit this node
  bool operator==(const Assignment&) const = default;
};

// The words of contracts §5 and §6, e.g. "worker_failure", "join_timeout".
const char* to_word(FormReason reason);
const char* to_word(FailureKind kind);
const char* to_word(OutcomeKind kind);
const char* to_word(ExitClass exit_class);

// "SIGKILL" for 9; "SIG<n>" for numbers without a name.
std::string signal_name(int number);

// What an errno value of a start that failed says about the node, not the program: a limit of
// processes, descriptors, memory or disk, with the place to raise it. Empty: none of these.
std::string limit_words(int error);

// The exit code for a worker that could not be started: 127 no such program, 126 it cannot be
// executed, 70 the node is out of something (limit_words).
int spawn_exit_code(int error);
// 9 for "KILL", "SIGKILL", "9"; nullopt otherwise.
std::optional<int> signal_number(const std::string& name);

}  // namespace muster
