// SPDX-License-Identifier: Apache-2.0
//
// One run of a job: its members, the round that forms the next generation, the generation that
// runs, and the end. Private to launcher/rendezvous/core.
//
// Every public call handles one fact and then lets advance() move the phase as far as it goes, so
// no handler has to know what follows from it. The phases:
//
//   Forming -> Preparing -> Starting -> Running -> Stopping -> Backoff -> Forming …
//      ^______ a member fell out ___|                 |
//   Recovering -> Forming (this server learnt the job from its agents)      -> Finished
//
//   job.cc           construction, sending, the step's end, deadlines
//   job_attach.cc    join, reattach, a server that knows less than its agents
//   job_round.cc     choosing members, prepare, commit, what is told while waiting
//   job_work.cc      workers: started, exited; stop orders and their confirmations
//   job_attempts.cc  what a scheduler tried at the places of nodes
//   job_grow.cc      nodes that came late to a generation that runs
//   job_operate.cc   what an operator asks for
//   job_settle.cc    what a stopped generation costs and what follows
//   job_quarantine.cc nodes that keep breaking the job
//   job_liveness.cc  heartbeats, broken streams, losses, leaving
//   job_end.cc       the outcome and who has read it
//   job_view.cc      the state as data, for people
//   job_record.cc    … and for the journal; a run read back from it
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/core/budget.h"
#include "launcher/rendezvous/core/faults.h"
#include "launcher/rendezvous/core/first_cause.h"
#include "launcher/rendezvous/core/member.h"
#include "launcher/rendezvous/core/quarantine.h"
#include "launcher/rendezvous/core/recoveries.h"
#include "launcher/rendezvous/core/rendezvous.h"
#include "proto/base/rng.h"

namespace muster::rendezvous {

// What all jobs of one server share. Lives as long as the server.
struct Shared {
  const Options& options;
  Rng& rng;
  Sessions& sessions;
  Instant started_at;  // of this server
};

class Job {
 public:
  // A new run. With `known`: the run that another server began, learnt from an agent.
  Job(Shared& shared, const JobSpec& spec, RunId run, const Reattach* known, Instant now);
  // A run that this server's predecessor wrote down.
  Job(Shared& shared, const RunRecord& from, Instant now);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // ---- facts
  void join(SessionId session, const std::string& peer, const Join& join, Instant now);
  void reattach(SessionId session, const std::string& peer, const Join& join, Instant now);
  void said(const Attachment& from, SessionId session, const AgentMessage& message, Instant now);
  void stream_lost(const Attachment& from, SessionId session, Instant now);
  // What an operator asked for; `by` names the operator.
  OrderAnswer operate(const Order& order, const std::string& by, Instant now);
  // The server goes away: its agents are told, and nothing happens here any more.
  void server_leaves(const std::string& reason, Instant now);
  void tick(Instant now);
  // Nobody is lost before `until`.
  void hold_losses(Instant until);
  // The host slept: what nobody could have heard in that time counts as not missed.
  void shift_liveness(Duration by, Instant now);
  // The host stood still: agents may have given up their streams meanwhile.
  void note_stall(Duration by, Instant now);
  // Says JobOver now where that is still owed; the run is about to be forgotten.
  void give_up_waiting(Instant now);

  // A new agent that is no other than one of this run, which has ended: the same attempt of the
  // scheduler, started again. False: it begins another run.
  bool tell_outcome(SessionId session, const Join& join, Instant now);

  // ---- what follows
  // Appends what the last call ordered, behind a Persist of what it changed.
  void take(std::vector<Action>& out);
  std::optional<Instant> next_deadline() const;
  JobView view(Instant now) const;
  RunRecord whole_record() const;
  std::size_t connected() const;  // members

  // ---- questions
  const JobSpec& spec() const { return spec_; }
  const RunId& run() const { return run_; }
  bool is_run(const RunId& run) const { return run == run_ || aliases_.contains(run); }
  bool finished() const { return phase_ == Phase::kFinished; }
  // Its server told all to end without an outcome: an agent that did not hear it is told now,
  // and a new one begins a new run.
  bool given_up() const { return given_up_until_.has_value(); }
  bool over() const { return over_; }
  Instant finished_at() const { return finished_at_; }
  // Until when workers of this run may live where it cannot see them (--fence strict).
  std::optional<Instant> fence() const { return fenced_until_; }
  // The run before this one left such a fence.
  void wait_for_fence(std::optional<Instant> until);
  // Whether a broken stream of `node` says something about the network.
  bool counts_as_broken(const NodeName& node) const;
  // Nobody needs the outcome any more.
  bool forgettable(Instant now) const;

 private:
  // A generation being published.
  struct Round {
    Generation generation = kNoGeneration;
    Attempt attempt = 0;
    std::vector<MemberRanks> ranks;
    std::uint32_t world_size = 0;
    std::string master_addr;
    std::uint16_t master_port = 0;
    std::set<NodeName> chosen;
    std::set<NodeName> unanswered;
    Instant deadline;
  };

  // The generation committed last; kept while the next one forms.
  struct Life {
    Generation generation = kNoGeneration;
    std::vector<MemberRanks> ranks;  // by group rank
    std::map<NodeName, std::uint32_t> group_ranks;
    std::uint32_t world_size = 0;
    std::string master_addr;
    std::uint16_t master_port = 0;
    bool ended = false;
    bool rose = false;  // progress was made in it, as --max-no-progress counts it
    Instant committed_at;
    Duration form{0};
    std::optional<Instant> running_at;  // all workers exec'd
    std::optional<Instant> kept_at;     // a checkpoint last rose
    std::set<NodeName> unstarted;       // nodes some of whose workers may not run yet
    std::set<NodeName> announced;       // nodes whose WorkersStarted came
    std::set<std::uint32_t> exited;     // ranks whose end was reported
    std::set<std::uint32_t> done;       // exited 0, not torn down
    std::vector<Cause> causes;          // in the order of their reports
    std::map<NodeName, std::vector<std::size_t>> causes_of;  // indexes into `causes`
    std::vector<Failure> torn_down;                          // failed after our stop signal
    std::optional<Instant> parted_at;                        // first sign that a node leaves it
    std::optional<event::Recovered> recovered;               // waits for the first progress
    Instant recovers_from;                                   // the failure

    void note(Cause cause) {
      causes_of[cause.failure.node].push_back(causes.size());
      causes.push_back(std::move(cause));
    }
  };

  struct Stop {
    StopWhy why = StopWhy::kFailure;
    bool planned = false;
    std::string reason;
    Instant began;
    Instant give_up_at;                // a member that has not confirmed is lost then
    std::optional<Instant> settle_at;  // confirmed by all, but a Leave may still explain it
  };

  // From a failure to all workers running again, for `recovered`.
  struct Recovery {
    Instant failed_at;
    Instant detected_at;
    Instant stopped_at;
  };

  using Members = std::map<NodeName, Member>;

  // ---- job.cc
  void begin(Instant now) { now_ = now; }
  void end();
  void advance();
  bool advance_once();
  template <class Order>
  void act(Order order) {
    out_.emplace_back(std::move(order));
  }
  Envelope envelope(const Member& member, Generation generation) const;
  void send(const Member& member, Generation generation, ServerBody body);
  void send(const Member& member, ServerBody body) { send(member, generation_, std::move(body)); }
  void send_to(SessionId session, const NodeName& node, Incarnation incarnation,
               Generation generation, ServerBody body);
  // Emit alone: the server's file. publish_event: agents' files too.
  void emit(JobEvent event);
  void publish_event(JobEvent event);
  JobEvent job_event(EventBody body) const;
  JobEvent started_event() const;
  JobEvent running_event() const;
  JobEvent node_event(const NodeName& node, EventBody body) const;
  // What the record keeps of this node has changed.
  void touch(const NodeName& node) { touched_.insert(node); }
  void touch_all();
  Member* find(const NodeName& node);
  std::vector<NodeName> names() const;
  Instant started_by() const;
  std::optional<Instant> phase_deadline() const;
  std::optional<Instant> recovered_due() const;

  // ---- job_record.cc
  void write_down_changes(std::vector<Action>& out);
  JobRecord record() const;
  ProgressRecord progress_record() const;
  LifeRecord life_record() const;
  std::optional<NodeRecord> node_record(const NodeName& name) const;
  NodeRecord less_torn_down(const NodeName& name, const Member* member,
                            const MemberRanks* ranks) const;
  WallTime wall(Instant at) const;
  std::optional<WallTime> wall(std::optional<Instant> at) const;
  Instant past(WallTime at);
  std::optional<Instant> past(std::optional<WallTime> at);
  void restore(const JobRecord& from);
  void restore_offenders(const JobRecord& from);
  void restore(const ProgressRecord& from);
  void restore(const NodeRecord& from);
  void restore_life(const LifeRecord& from, const RunRecord& run);
  void resume_phase();
  Attempt first_attempt() const;

  // ---- job_attach.cc
  std::optional<JoinRefused> refused(const Join& join) const;
  std::optional<JoinRefused> refused_as_spare(const NodeFacts& node) const;
  std::optional<JoinRefused> refused_by_holder(const NodeFacts& node, const Member& holder) const;
  std::optional<NodeName> holder_of(std::optional<std::uint32_t> node_rank) const;
  void make_way(const NodeFacts& newer);
  void refuse(SessionId session, const Join& join, JoinRefused why);
  void evict(SessionId session, const NodeName& node, Incarnation incarnation,
             const std::string& reason);
  Member& admit(SessionId session, const std::string& peer, const Join& join,
                Incarnation incarnation);
  void resume(Member& member, SessionId session, const std::string& peer, const Join& join);
  void resend(Member& member, const Reattach& reattach);
  void return_to_us(SessionId session, const std::string& peer, const Join& join);
  bool is_older(const Member& holder, const Reattach& known) const;
  void found_working(Member& member, Generation generation);
  void answer_late(SessionId session, const Join& join);
  bool knows_more(const NodeName& node, const Reattach& known) const;
  bool within_return_window() const;
  void adopt(const Reattach& reattach);
  void tell_state_lost(const NodeName& newcomer);
  Role role_of_newcomer() const;
  std::string by_holder() const;

  // ---- job_attempts.cc
  std::optional<JoinRefused> refused_as_over(const NodeFacts& node) const;
  std::vector<std::string> past_of(const NodeFacts& newer) const;
  void note_gone(const Member& member);
  void take_over(const NodeFacts& newer);

  // ---- job_round.cc
  void open_round(FormReason reason, bool wait_for_max);
  bool is_free(const NodeName& name, const Member& member) const;
  bool may_be_chosen(const NodeName& name, const Member& member) const;
  std::size_t count_candidates();
  std::vector<Member*> candidates();
  bool awaits_previous_member() const;
  bool try_publish();
  void publish(std::vector<Member*> chosen);
  Assignment assignment_for(const MemberRanks& member) const;
  void reopen_round();
  void set_aside(Member& member, std::string why);
  bool on(Member& member, const Envelope& envelope, const PrepareAnswer& answer);
  bool try_commit();
  bool end_recovery();
  std::optional<Waiting> picture() const;
  Duration remaining() const;
  void say_waiting();
  void say_waiting_to(const Member& member, const Waiting& waiting);

  // ---- job_work.cc
  bool on(Member& member, const Envelope& envelope, const WorkersStarted& started);
  bool on(Member& member, const Envelope& envelope, const WorkerExited& exited);
  bool on(Member& member, const Envelope& envelope, const StopConfirmed& confirmed);
  bool on(Member& member, const Envelope& envelope, const ChaosFired& fired);
  void emit_exit(const NodeName& node, const WorkerExited& exited);
  void note_failed_exit(Member& member, const WorkerExited& exited, Instant happened);
  bool works_in_life(const Member& member) const;
  const MemberRanks* ranks_of(const NodeName& node) const;
  bool all_done(const NodeName& node) const;
  bool try_running();
  bool check_running();
  void tell_recovered();
  void begin_stop(StopWhy why, bool planned, std::string reason);
  void order_stops(StopWhy why, bool planned, std::string reason);
  Stop new_stop(StopWhy why, bool planned, std::string reason) const;
  void order_stop(const Member& member);
  std::vector<NodeName> stopping_nodes() const;
  void stopped_working(const NodeName& node);

  // ---- job_grow.cc
  bool runs() const { return phase_ == Phase::kStarting || phase_ == Phase::kRunning; }
  std::vector<NodeName> late_nodes();
  bool try_grow();

  // ---- job_operate.cc
  OrderAnswer obey(const StopJob& order, const std::string& by);
  OrderAnswer obey(const ScaleJob& order, const std::string& by);
  OrderAnswer obey(const DrainNode& order, const std::string& by);
  OrderAnswer obey(const RestartJob& order, const std::string& by);
  std::string finished_ranks() const;
  std::string then_waits(const std::string& who) const;
  void begin_drain(Member& member, const std::string& by);
  bool may_go(const Member& member) const;
  void dismiss_drained();
  void forget_drained();
  void dismiss(SessionId session, const NodeName& node, Incarnation incarnation);

  // ---- job_settle.cc
  bool try_settle();
  bool is_stop(const Cause& cause) const;
  bool follows_a_stop(const Cause& cause) const;
  void note_parting(const Member& member, int signal, Instant left);
  bool may_excuse(const Cause& cause, const Verdict& settled) const;
  bool ended_by_leaves() const;
  std::optional<Instant> evidence_due(const Cause& cause) const;
  std::optional<Instant> evidence_complete_at(const std::optional<Verdict>& settled) const;
  Instant heard_of_all(Instant then) const;
  std::optional<Verdict> verdict() const;
  void end_life(bool kept);
  void tell_failure(const Verdict& verdict);
  void settle_failure(const Verdict& verdict);
  bool out_of_patience();
  void give_up(const Verdict* verdict);
  void schedule(FormReason reason, const Charge& charge);
  void fail(const Verdict& verdict, const std::string& why);

  // ---- job_quarantine.cc
  bool confined(const NodeName& node) const;
  void blame(const Failure& first);
  void let_back(const NodeName& node);
  void end_quarantines();
  std::size_t call_back(std::size_t missing);

  // ---- job_liveness.cc
  bool on(Member& member, const Envelope& envelope, const Heartbeat& heartbeat);
  bool on(Member& member, const Envelope& envelope, const Leave& leave);
  void note_progress(const Member& member);
  void note_first_progress(const Member& member);
  Instant lost_at(const Member& member) const;
  void hold(Member& member);
  void check_losses();
  void lose(const NodeName& node, const std::string& why);
  void remove(const NodeName& node);
  Duration fence_time() const;
  void fence_off(Instant heard);
  bool fenced() const { return fenced_until_ && now_ < *fenced_until_; }
  void forget_leaves();
  bool anyone_remains() const;
  bool everyone_left() const {
    // Who adopts a run does not know yet who else is in it, unless as many as it takes are back.
    const bool unknown = phase_ == Phase::kRecovering && state_lost_ && now_ < recovering_until_ &&
                         returned_.size() < spec_.max_nodes;
    return last_leave_signal_ != 0 && !anyone_remains() && !unknown;
  }
  void watch(const Member& member);

  // ---- job_end.cc
  bool on(Member& member, const Envelope& envelope, const OutcomeSeen& seen);
  void finish(Outcome outcome);
  void finish_stopped(int exit_code, ExitClass exit_class, const std::string& text);
  void finish_left();
  void time_out_joining();
  std::string missing_nodes() const;
  void check_over();
  Instant read_by(const Member& member) const;
  Instant forgotten_at() const;
  double goodput() const;
  double goodput_so_far(Instant now) const;
  std::string ended_in_quarantine() const;
  void dismiss_confined();

  // Answers a message that is not current. Every on(…) returns false for such a one.
  void stale(SessionId session, const AgentMessage& message);
  bool on(Member&, const Envelope&, const Join&) { return false; }  // routed to join()

  Shared& shared_;
  JobSpec spec_;
  NodeRange asked_;  // as the agents bring it; spec_ has what an operator made of it
  RunId run_;
  std::set<RunId> aliases_;  // runs of ours that turned out to be `run_`
  ServerEpoch epoch_ = 1;
  Instant now_;
  Instant started_at_;
  Phase phase_ = Phase::kForming;
  Budget budget_;
  FaultBook faults_;
  QuarantineBook quarantine_;

  Members members_;
  std::map<NodeName, AttemptsRecord> gone_;  // what a scheduler tried where no member is any more
  Incarnation last_incarnation_ = 0;
  std::set<NodeName> working_;  // nodes where workers of an ended or running life may be alive
  Instant liveness_check_at_;   // no later than the earliest loss
  Instant hold_losses_until_;
  std::optional<Instant> fenced_until_;  // lost nodes may run workers until then (--fence strict)
  Instant stall_echo_until_;             // streams that break before this broke for our stall

  // The next generation.
  Generation generation_ = kNoGeneration;  // committed last
  Attempt next_attempt_ = 0;
  FormReason reason_ = FormReason::kStart;
  bool wait_for_max_ = true;  // last call applies: first forming, until something was published
  bool reforming_ = false;    // there are previous members to wait for
  Instant round_opened_at_;
  Instant join_deadline_;
  std::optional<Instant> last_call_until_;
  std::optional<Instant> forming_deadline_;
  std::optional<Round> round_;

  std::optional<Life> life_;
  Attempt committed_attempt_ = 0;
  std::optional<Stop> stop_;
  std::optional<Instant> grown_at_;           // when the last growth was ordered
  std::optional<Instant> growth_call_until_;  // the last call beside a generation that runs
  std::optional<Instant> growth_due_;         // when growing is looked at again
  bool checkpoint_rose_ = false;              // in this step, where growth waits for it
  Instant backoff_until_;
  std::optional<Recovery> recovery_;
  Recoveries recoveries_;
  bool ever_execed_ = false;  // something of the run was exec'd once
  std::uint64_t best_step_ = 0;
  std::uint64_t best_checkpoint_ = 0;
  bool reports_steps_ = false;
  std::uint32_t idle_generations_ = 0;  // ended in a row without progress
  Duration kept_{0};                    // running time whose progress was kept, of ended lives

  // Leaves with a signal, newest last; see forget_leaves.
  std::deque<std::pair<Instant, int>> leaves_;
  int last_leave_signal_ = 0;  // of the leave after which nobody remained
  std::optional<std::string> stop_requested_by_;
  std::map<AgentId, std::string> drained_;  // and by whom; some are still here

  bool state_lost_ = false;  // a server adopted the run
  bool adopted_ = false;     // this one did
  bool state_lost_untold_ = false;
  Instant recovering_until_;
  std::set<NodeName> returned_;  // since a run was adopted, from the server that lost its state
  std::optional<Instant> recovery_due_;
  bool server_left_ = false;
  std::optional<Instant> given_up_until_;  // read from a journal; agents live no longer

  // The picture for those who wait depends on these alone; most events change none of them.
  struct PictureKey {
    Phase phase = Phase::kForming;
    bool last_call = false;
    std::uint64_t version = 0;  // of the member list
    bool operator==(const PictureKey&) const = default;
  };
  std::uint64_t picture_version_ = 0;
  std::optional<PictureKey> said_key_;
  std::optional<Waiting> said_waiting_;  // as last broadcast, less `remaining`
  Instant said_waiting_at_;
  std::optional<Instant> say_waiting_at_;

  std::optional<Failure> last_failure_;
  std::optional<Outcome> outcome_;
  Instant finished_at_;
  std::optional<Instant> over_at_;  // at the latest, while somebody has not read it
  std::set<NodeName> unread_;       // members that have not confirmed the outcome
  bool over_ = false;

  std::optional<std::string> recovered_;  // from a journal; what its agents are told of it

  // What the journal holds, and what a step changed of the rest. A heartbeat, by far the most
  // frequent fact, stirs nothing.
  bool stirred_ = true;
  JobRecord written_;
  bool life_touched_ = false;
  bool read_back_ = false;  // from a journal
  bool set_back_ = false;   // a time there was later than the clock is now
  std::set<NodeName> touched_;
  std::vector<Action> out_;
};

// The name of a message for Stale::what, e.g. "worker_exited".
const char* message_name(const AgentBody& body);

}  // namespace muster::rendezvous
