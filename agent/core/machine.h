// SPDX-License-Identifier: Apache-2.0
//
// The agent machine's state and its parts, private to agent/core. One event is handled by on(…),
// which changes what is wanted; settle() then brings actual towards wanted: signals that are due,
// confirmations that are owed, the end when nothing runs any more. So every event, in every
// phase, ends in the same few lines, and no path can forget one of them.
//
//   machine.cc        the step, deadlines, the view
//   machine_link.cc   connecting, joining, heartbeats, the lease
//   machine_round.cc  prepare, commit, stop orders, job events
//   machine_work.cc   workers: spawned, ended, gone; stopping them
//   machine_suspend.cc  SIGTSTP and SIGCONT: workers stopped and going on
//   machine_devices.cc  waiting for the memory that ended workers had on GPUs
//   machine_hang.cc   workers that make no progress, or say nothing
//   machine_end.cc    signals to the agent, every way to the one Finish
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent.h"
#include "agent/core/lines.h"
#include "agent/core/stop_ladder.h"
#include "proto/base/rng.h"

namespace muster::agent {

// contracts §2: a worker that the same signal ended, this close to ours, was stopped.
inline constexpr Duration kSameSignalWindow = 2s;

// One worker of the current generation, kept until the next generation starts: its report is
// sent again after a broken stream.
struct Worker {
  std::uint32_t local_rank = 0;
  std::uint32_t rank = 0;
  std::string argv0;
  std::int64_t pid = 0;
  bool spawned = false;
  bool gone = false;      // nothing of it is left
  bool given_up = false;  // even SIGKILL does not end it
  StopLadder ladder;
  std::optional<Instant> ended_at;
  Duration failing{0};            // how long it had been failing then
  std::optional<Duration> spoke;  // … since its last words
  Duration spares_failing{0};     // see SignalWorker
  WorkerExited report;            // meaningful once ended
  bool failed = false;            // ended badly and not by us
  bool parting = false;           // it is stopped because the node leaves, and was not before
  bool lingers_said = false;
  bool suspended = false;             // SIGSTOP was sent, SIGCONT not yet
  std::optional<std::uint64_t> step;  // as reported last
  Duration standstill{0};             // since then, or since it runs
  std::string stacks;                 // path, once captured
  std::optional<Hang> hang;           // it is killed for this …
  std::string hang_words;             // … in words

  bool ended() const { return ended_at.has_value(); }
  bool done() const { return ended() && report.status.succeeded() && !report.torn_down; }
};

// The stream to the server.
struct Link {
  enum class State : std::uint8_t { kClosed, kOpening, kUp };
  State state = State::kClosed;
  bool accepted = false;        // JoinAccepted came on this stream
  bool left = false;            // Leave was sent on it
  bool stop_confirmed = false;  // … and, later, that nothing of the current generation runs
  std::uint64_t farewell = 0;   // … and this heartbeat after all that there is to say; 0: not yet
  Instant since;                // opening: when Connect is due; up: when it went up
  Instant heard_at;             // up: last message from the server
  std::uint32_t failures = 0;   // in a row, since a Join was last accepted
  LinkHistory history;

  bool usable() const { return state == State::kUp && accepted; }
};

// A generation that this node was asked to prepare.
struct Prepared {
  Attempt attempt = 0;
  Assignment assignment;
  bool answered = false;
  Instant answered_at;
  // A Commit that came too late to be trusted: its master port, and since when it waits.
  std::optional<std::uint16_t> committed;
  Instant committed_at;
};

// The next workers do not start before this is over.
struct DeviceWait {
  std::uint32_t number = 0;
  Instant until;  // then they start in any case
};

// Stacks are being captured.
struct Capture {
  std::uint32_t number = 0;
  Instant until;  // then it is over in any case
  bool by_silence = false;
  std::optional<int> stop_signal;  // the server has ordered a stop meanwhile
};

// Every way to end but one is this node's own; `outcome` is set for the job's.
struct End {
  int exit_code = 0;
  ExitClass exit_class = ExitClass::kSucceeded;
  std::optional<Outcome> outcome;
  std::string text;
};

struct Agent::State {
  explicit State(AgentConfig from);

  std::vector<Action> step(const Event& event, Instant now);
  std::optional<Instant> next_deadline() const;
  AgentView view() const;

  // ---- machine.cc
  void on(const Tick&);
  void settle();
  template <typename A>
  void act(A action) {
    out_.emplace_back(std::move(action));
  }
  void say(Severity severity, std::string text) { act(Say{severity, std::move(text)}); }
  void send(Generation generation, AgentBody body);
  void emit(JobEvent event);
  bool waits() const;  // for the server, or for a generation
  void say_waiting();

  // ---- machine_link.cc
  void on(const Started&);
  void on(const LinkUp&);
  void on(const LinkDown&);
  void on(const ServerSaid&);
  bool is_current(const ServerMessage& message);
  void said(const Envelope&, const JoinAccepted&);
  void said(const Envelope&, const JoinRefused&);
  void said(const Envelope&, const HeartbeatAck&);
  void said(const Envelope&, const Stale&);
  void connect();
  void drop_link(std::string reason);
  void link_failed(std::string reason);
  void report_again();
  void forget_run();
  void check_link_deadlines();
  void send_heartbeat();
  Duration retry_delay();
  Duration lease() const;
  std::optional<Instant> lease_end() const;
  std::optional<Instant> link_patience_end() const;
  std::optional<Instant> link_deadline() const;
  bool reconnects() const;

  // ---- machine_round.cc
  void on(const MasterPortHeld&);
  void on(const MasterPortFailed&);
  void said(const Envelope&, const Waiting&);
  void said(const Envelope&, const Prepare&);
  void said(const Envelope&, const Commit&);
  void said(const Envelope&, const StopOrder&);
  void said(const Envelope&, const JobEventNotice&);
  void answer_prepare(bool accepted, std::uint16_t port, std::string reason);
  void release_port();
  bool is_counted_on() const;
  void start_committed();
  void start_generation(std::uint16_t master_port);
  bool has_member(const NodeName& node) const;
  void confirm_stops();

  // ---- machine_work.cc
  void on(const WorkerSpawned&);
  void on(const WorkerEnded&);
  void on(const WorkerGone&);
  void on(const WorkerUnkillable&);
  void on(const FaultFired&);
  void on(const ProgressSampled&);
  Worker* find(std::uint32_t local_rank);
  bool any_alive() const;     // something of a worker may be left
  bool any_not_over() const;  // … and it was not given up on
  bool any_leader_alive() const;
  void emit_exit(const Worker& worker);
  bool stops_agent(int signal) const;
  void report_exit(Worker& worker);
  void react_to_failure(const Worker& worker);
  void announce_started();
  // `spares_failing`: see SignalWorker.
  void stop_workers(int signal, Duration grace, Duration spares_failing = Duration{0});
  void stop_planned(int signal, Duration grace);
  void kill_workers();
  void drive_ladders();
  int wanted_signal() const { return config_.stop_signal.value_or(kSigTerm); }
  std::optional<Instant> linger_deadline(const Worker& worker) const;
  Duration exit_grace() const { return config_.exit_grace.value_or(policy_.stop_grace); }
  std::vector<RankProgress> progress_now() const;

  // ---- machine_suspend.cc
  bool suspends_or_resumes(int signal);
  void suspend();
  void resume();
  void suspend_worker(Worker& worker);
  void wake_worker(Worker& worker);

  // ---- machine_devices.cc
  void on(const DevicesFreed&);
  void await_devices();
  void check_device_wait();
  void end_device_wait(const std::string& holder);

  // ---- machine_hang.cc
  void on(const StacksCaptured&);
  bool watches_hangs() const;
  Duration look_every() const;
  std::optional<Instant> hang_deadline() const;
  void check_hangs();
  void count_standstill(Worker& worker, Duration counted);
  void capture_stacks(bool by_silence, const std::string& why);
  void conclude_hang(const std::vector<CapturedStacks>& captured);
  Worker* choose_culprit(const std::vector<Worker*>& stopped, bool by_silence);

  // ---- machine_end.cc
  void on(const SignalReceived&);
  void on(const GuardianLost&);
  void said(const Envelope&, const OutcomeNotice&);
  void said(const Envelope&, const Evicted&);
  void said(const Envelope&, const ServerLeaving&);
  void leave(int signal, std::string reason);
  void send_leave();
  void end_with(End end);
  void stop_for_good(int signal, Duration grace);
  Duration kill_patience() const;
  bool is_last_member() const;
  void finish_if_over();
  void note_same_signal();
  void repeated_signal();
  bool was_before_the_signal(Generation generation) const;
  void say_farewell();
  std::optional<Instant> farewell_end() const;
  std::optional<Instant> farewell_line_at() const;
  bool awaits_farewell();
  std::optional<Instant> outcome_wait_end() const;

  AgentConfig config_;
  JobPolicy policy_;
  Rng rng_;
  Instant now_;
  std::vector<Action> out_;

  // Identity, as the server last said.
  RunId run_;
  Incarnation incarnation_ = 0;
  ServerEpoch epoch_ = 0;
  std::uint32_t restarts_used_ = 0;

  Link link_;
  bool started_ = false;
  bool ever_accepted_ = false;
  Instant started_at_;
  Instant join_sent_at_;
  bool lease_over_ = false;
  bool server_left_ = false;
  Instant answered_at_;  // send time of the last message that the server answered: the lease
  Instant heartbeat_at_;
  std::uint64_t heartbeat_sequence_ = 0;
  std::deque<std::pair<std::uint64_t, Instant>> heartbeats_;  // sent, not answered; bounded
  std::optional<Instant> waiting_since_;
  Instant waiting_said_at_;
  std::optional<Waiting> waiting_;  // as told at `waiting_told_at_`
  Instant waiting_told_at_;
  Role role_ = Role::kMember;

  std::optional<Prepared> prepared_;
  std::uint32_t ports_asked_ = 0;  // HoldMasterPort without an answer yet
  bool port_wanted_ = false;       // asked for and not released

  // The generation that was committed here last, and what remains of it.
  Assignment assignment_;
  Instant committed_at_;
  std::vector<Worker> workers_;
  bool all_spawned_ = false;                // WorkersStarted was due
  std::optional<Generation> running_told_;  // whose generation_running was read
  Duration spawn_{0};
  bool stopping_ = false;                       // no rank of it shall go on
  std::vector<Generation> confirmations_owed_;  // one entry a StopOrder
  bool confirmed_ = false;
  bool cause_noted_ = false;
  bool suspended_ = false;  // workers are, those too that start meanwhile; until SIGCONT
  std::vector<RankProgress> progress_;
  Instant progress_at_;
  std::vector<ChaosFired> faults_unsent_;
  bool omp_said_ = false;

  // Hangs.
  Instant hang_looked_at_;
  std::uint64_t output_heard_ = 0;
  std::uint64_t output_counted_ = 0;
  Duration silent_{0};
  std::uint32_t captures_ = 0;
  std::optional<Capture> capture_;

  // GPUs: asked once for the workers that are gone.
  std::uint32_t device_waits_ = 0;
  bool devices_asked_ = false;
  std::optional<DeviceWait> device_wait_;

  // The end.
  std::optional<int> signal_;  // first stop signal to the agent
  bool new_stream_since_signal_ = false;
  Instant signaled_at_;
  Instant signal_counted_at_;
  std::uint32_t signals_counted_ = 0;
  std::optional<Leave> leave_;
  Instant leave_at_;                       // when it was decided
  bool farewell_heard_ = false;            // the server answered what was said last of all
  bool sent_away_ = false;                 // refused or evicted: there is nobody to tell
  std::optional<Instant> farewell_since_;  // nothing runs, and nobody is known to know it
  bool unheard_ = false;                   // that was waited for long enough
  bool farewell_line_said_ = false;
  std::optional<Outcome> outcome_;
  bool job_finished_emitted_ = false;
  std::set<NodeName> left_;  // members of the generation that have left the job
  std::optional<End> end_;
  std::optional<Instant> idle_since_;  // nothing runs and an end is wanted
  bool finished_ = false;
};

}  // namespace muster::agent
