// SPDX-License-Identifier: Apache-2.0
//
// The agent machine: one node's part in a job. It joins, holds the master port, starts workers on
// Commit, reports how they end, runs the stop ladder, and ends with the job's outcome. Pure: no
// clock, process, signal, socket or file; the shell (agent/shell) turns the world into events
// and carries out the actions in order.
//
// The machine keeps *wanted* (which generation should run here) apart from *actual* (which
// workers live). Invariants:
//   1. workers of generation g+1 are started only when no worker of an older one lives here;
//   2. every StopOrder is answered by one StopConfirmed, never before the last worker is gone; one
//      that leaves confirms unasked as well;
//   3. Finish is returned exactly once, after every worker is gone or given up on;
//   4. an agent told Evicted, or without the server for server_grace, kills its workers;
//   5. a worker that is told to end is not left suspended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/messages.h"
#include "proto/base/time.h"

namespace muster::agent {

enum class SignalScope : std::uint8_t {
  kLeader,       // the worker process alone
  kGroup,        // its process group
  kDescendants,  // everything below it, however it re-parented
  kBeyondGroup,  // of these, what has left its process group
};

// Environment as data; std::map keeps it ordered and free of doubles.
using Environment = std::map<std::string, std::string>;

// How long the capture of stacks may take, all workers together.
inline constexpr Duration kStackPatience = 10s;

enum class ExitCodeMode : std::uint8_t { kWorker, kFlat };

struct AgentConfig {
  JobSpec spec;
  NodeFacts node;

  // The program. `argv` is final but for ${local_rank}.
  std::vector<std::string> argv;
  bool substitute_local_rank = true;
  bool pass_local_rank = false;  // append --local-rank=N
  // By local rank: the one device that a worker sees, as its local rank 0. Empty: they see all.
  std::vector<std::string> own_devices;
  std::string role_name = "default";
  Environment environment;            // the agent's own, less its options, to be overlaid
  bool scheduler_strips_pmi = false;  // slurm and mpi: PMI_*, PMIX_*, OMPI_COMM_WORLD_* go
  std::string store_endpoint;         // MUSTER_STORE, "127.0.0.1:port"
  std::string store_token_file;       // MUSTER_STORE_TOKEN_FILE

  // Stopping.
  std::optional<int> stop_signal;  // nullopt: "same"
  SignalScope stop_scope = SignalScope::kLeader;
  std::optional<Duration> exit_grace;  // for what ended workers left behind; nullopt: stop_grace
  Duration stop_budget = 30s;          // the agent itself signalled: signal to exit
  std::vector<int> forward_signals;    // passed on without stopping
  std::vector<int> more_stop_signals;  // the agent stops on these, besides HUP, INT, QUIT, TERM

  // Hangs; nullopt: not looked for. A worker that has not reported anything yet has `hang_first`.
  std::optional<Duration> hang_timeout;
  Duration hang_first{0};
  std::optional<Duration> silence_timeout;

  std::uint16_t master_port_low = 20000;
  std::uint16_t master_port_high = 28999;
  unsigned processors = 0;       // usable here; 0: not known. Only for words
  bool master_port_hold = true;  // for the whole generation; false: until workers start
  // How long workers wait for the memory that those before them had on GPUs; 0: no GPU here.
  Duration device_patience{0};
  ExitCodeMode exit_code = ExitCodeMode::kWorker;
  std::uint64_t seed = 0;  // retry jitter
  std::string endpoint;    // the server as the user wrote it; only for messages
};

// ------------------------------------------------------------------ events

struct Started {};
struct LinkUp {};  // a stream to the server is open; the Join may be sent
struct LinkDown {
  std::string reason;
  bool speaks_muster = true;  // false: something answered that is not Muster
};
struct ServerSaid {
  ServerMessage message;
};
struct MasterPortHeld {
  Attempt attempt = 0;
  std::uint16_t port = 0;
};
struct MasterPortFailed {
  Attempt attempt = 0;
  std::string reason;
};
struct WorkerSpawned {  // exec succeeded
  std::uint32_t local_rank = 0;
  std::int64_t pid = 0;
};
// The leader ended, or could not be started (status.kind == kExecFailed, pid 0).
struct WorkerEnded {
  std::uint32_t local_rank = 0;
  std::int64_t pid = 0;
  ExitStatus status;
  bool oom = false;
  // It ended before anything asked it to, whatever was ordered until this was told.
  bool unasked = false;
  std::uint64_t order = 0;
  Duration failing{0};  // how long before this its failure began: its end, or as it says itself
  std::optional<Duration> spoke;  // … its last words on stderr came; nullopt: none lately
  Duration run{0};
  std::uint64_t max_rss_bytes = 0;
  std::string stderr_tail;
  std::string error_file;
  bool secondary = false;
};
// Nothing of this worker is left: leader reaped, group and descendants empty. Follows WorkerEnded.
struct WorkerGone {
  std::uint32_t local_rank = 0;
};
// Even SIGKILL did not end it within the order's patience (state D); ends in 77.
struct WorkerUnkillable {
  std::uint32_t local_rank = 0;
  std::int64_t pid = 0;
  std::string state;
};
struct SignalReceived {
  int signal = 0;
};
struct GuardianLost {
  std::string reason = "the guardian of this agent is gone";
};
struct FaultFired {
  std::uint32_t fault_index = 0;
  std::optional<std::uint32_t> rank;
};
struct ProgressSampled {
  std::vector<RankProgress> progress;  // by rank; only ranks that wrote the magic
  std::uint64_t heard = 0;             // bytes that workers have written, all in all
};
// The answer to AwaitDevices of that number.
struct DevicesFreed {
  std::uint32_t number = 0;
  std::string holder;  // what still holds memory when the patience is over; empty: it is free
};
// The answer to CaptureStacks of that number.
struct CapturedStacks {
  std::uint32_t local_rank = 0;
  std::string path;      // empty: there are none
  bool stopped = false;  // the worker's process is in state T
};
struct StacksCaptured {
  std::uint32_t number = 0;
  std::vector<CapturedStacks> workers;
};
struct Tick {};

using Event =
    std::variant<Started, LinkUp, LinkDown, ServerSaid, MasterPortHeld, MasterPortFailed,
                 WorkerSpawned, WorkerEnded, WorkerGone, WorkerUnkillable, SignalReceived,
                 GuardianLost, FaultFired, ProgressSampled, DevicesFreed, StacksCaptured, Tick>;

// ------------------------------------------------------------------ actions

// Open a stream to the server after `delay`. One is open or being opened at a time.
struct Connect {
  Duration delay{0};
};
struct Disconnect {};
struct Send {
  AgentMessage message;
};
struct HoldMasterPort {
  Attempt attempt = 0;
  std::uint16_t low = 0;
  std::uint16_t high = 0;
};
struct ReleaseMasterPort {};

struct WorkerPlan {
  std::uint32_t local_rank = 0;
  std::uint32_t rank = 0;
  std::vector<std::string> argv;
  // Complete but for the paths that only the shell knows: it adds TORCHELASTIC_ERROR_FILE,
  // MUSTER_PROGRESS_FILE, MUSTER_STOP_FILE, MUSTER_ASSIGNMENT_FILE, MUSTER_RUN_DIR.
  Environment environment;
  std::vector<ArmedFault> faults;  // those on this rank
};
struct StartWorkers {
  RunId run;
  Generation generation = kNoGeneration;
  std::vector<WorkerPlan> workers;
  std::vector<ArmedFault> agent_faults;  // kill-agent
  bool peers_elsewhere = false;          // other nodes have workers of this generation
};
struct SignalWorker {
  std::uint32_t local_rank = 0;
  int signal = 0;
  SignalScope scope = SignalScope::kLeader;
  Duration patience = 5s;  // SIGKILL: what lives after it is WorkerUnkillable
  bool stops = true;       // it is told to end; false: passed on, suspended, resumed
  // Who says that it fails by itself has this long to end by itself before the signal.
  Duration spares_failing{0};
};
// SIGTSTP, as a shell sees it: the process that users see stops, or goes on.
struct SuspendGuardian {};
struct ResumeGuardian {};
struct WriteStopFile {
  std::uint32_t local_rank = 0;
};
// All workers of the generation run: `after` faults count from here.
struct StartFaultClock {
  Generation generation = kNoGeneration;
  Duration elapsed{0};  // since all workers of the generation run
};
// Look until the memory of these processes, which are gone, is free on this node's GPUs, or for
// `patience`. Replaces the one before.
struct AwaitDevices {
  std::uint32_t number = 0;
  std::vector<std::int64_t> pids;
  Duration patience{0};
};
// Write the stacks of these workers to files, within kStackPatience, and look whether they are
// stopped.
struct CaptureStacks {
  std::uint32_t number = 0;
  struct Worker {
    std::uint32_t local_rank = 0;
    std::uint32_t rank = 0;
  };
  std::vector<Worker> workers;
};
struct Emit {
  RunId run;
  JobEvent event;
};
enum class Severity : std::uint8_t { kInfo, kWarning, kError };
// One line for people; the shell prefixes "muster: ".
struct Say {
  Severity severity = Severity::kWarning;
  std::string text;
};
// What an ended worker left behind, by name (lingering_line()): only the shell can look.
struct SayLingering {
  std::uint32_t local_rank = 0;
  std::uint32_t rank = 0;
  Duration grace{0};
};
// The first cause is known (before the outcome is): write the termination log early.
struct NoteFirstCause {
  Failure failure;
};
// The end. The shell prints the failure block for a failed outcome, flushes and exits.
struct Finish {
  int exit_code = 0;
  ExitClass exit_class = ExitClass::kSucceeded;
  std::optional<Outcome> outcome;  // the job's; nullopt: this node's own end (signal, 76, 77)
  std::string text;                // one line in words where there is no outcome
};

using Action =
    std::variant<Connect, Disconnect, Send, HoldMasterPort, ReleaseMasterPort, StartWorkers,
                 SignalWorker, WriteStopFile, SuspendGuardian, ResumeGuardian, StartFaultClock,
                 AwaitDevices, CaptureStacks, Emit, Say, SayLingering, NoteFirstCause, Finish>;

// ------------------------------------------------------------------ the machine

enum class Phase : std::uint8_t {
  kConnecting,
  kWaiting,
  kPrepared,
  kStarting,
  kRunning,
  kStopping,
  kIdle,
  kLeaving,
  kFinished
};

struct AgentView {
  Phase phase = Phase::kConnecting;
  bool connected = false;
  RunId run;
  Generation generation = kNoGeneration;
  std::uint32_t restarts_used = 0;
  std::vector<std::uint32_t> live_local_ranks;
  bool operator==(const AgentView&) const = default;
};

class Agent {
 public:
  explicit Agent(AgentConfig config);
  ~Agent();
  Agent(Agent&&) noexcept;
  Agent& operator=(Agent&&) noexcept;

  // Consumes one event and returns what the shell must do, in order. Never fails, never blocks.
  // REQUIRES: now >= the `now` of every earlier call.
  [[nodiscard]] std::vector<Action> step(const Event& event, Instant now);
  [[nodiscard]] std::optional<Instant> next_deadline() const;
  [[nodiscard]] AgentView view() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::agent
