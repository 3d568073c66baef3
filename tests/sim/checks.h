// SPDX-License-Identifier: Apache-2.0
//
// What must hold in every world, looked at after every step of every machine. The checks see the
// truth (which processes live) beside what the machines believe; the first violation is kept.
//
// Numbers in failure texts: A1.. are the invariants of agent/core/agent.h, R1.. those of
// launcher/rendezvous/core/rendezvous.h (F..: reasons.h), G.. the guarantees of the design,
// J.. the journal, B.. bounds, M.. the second opinion of model.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "agent/core/agent.h"
#include "launcher/rendezvous/core/rendezvous.h"
#include "tests/sim/options.h"
#include "tests/sim/scheduler.h"

namespace muster::sim {

// One worker as the world knows it.
struct Process {
  std::size_t node = 0;
  std::uint64_t life = 0;  // agent process that started it, numbered per node
  RunId run;
  Generation generation = kNoGeneration;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::int64_t pid = 0;
  bool leader = true;       // the worker itself lives
  bool rest = false;        // something it started lives
  bool spawn_told = false;  // WorkerSpawned was posted
  bool ignores_term = false;
  bool unkillable = false;
  bool dying = false;    // its end is on the way
  bool frozen = false;   // its agent was stopped at some time
  bool reports = false;  // writes its progress file, looks at its stop file
  Instant started;
  std::optional<Instant> hangs_from;  // it makes no progress and does not end by itself
  bool suspended = false;             // SIGSTOP; SIGKILL is all that it heeds
  std::vector<std::function<void()>> when_awake;

  bool alive() const { return leader || rest; }
  bool hangs(Instant now) const { return hangs_from && now >= *hangs_from; }
};
using ProcessPtr = std::shared_ptr<Process>;

// Why a worker ended.
enum class Ending : std::uint8_t {
  kDone,     // its work is done
  kFailure,  // its own
  kTold,     // it was asked to stop
  kKilled,   // without having been asked
  kPeer      // over another one that ended
};

// What the checks see of a node.
struct NodeTruth {
  std::size_t index = 0;
  NodeName name;
  std::uint64_t life = 0;
  std::vector<ProcessPtr> processes;  // of the generation started last
  bool stream_open = false;           // or being opened
  bool stream_up = false;
  std::uint64_t server_life = 0;  // of the server at the other end of the stream
  Duration ahead{0};              // how far its clock has leapt
};

class Checks {
 public:
  Checks(const Scheduler& clock, const SimOptions& options) : clock_(clock), options_(options) {}

  bool failed() const { return failure_.has_value(); }
  const std::optional<std::string>& failure() const { return failure_; }
  void fail(std::string what);

  void server_started();
  // The next server reads a journal without the last writes of the one before.
  void tail_lost(const std::vector<rendezvous::RunRecord>& journal);
  void server_leapt(Duration length);
  // What servers wait for in strict fencing may be over before its time, now as later: their clock,
  // the time of day or the journal is not what it was when they began to wait.
  void fences_void() {
    fence_void_ = clock_.now();
    ages_inexact_until(clock_.now());
  }
  // What agents tell of ages and orders until then need not be right: a message is long under way,
  // a process stands still, a clock leapt.
  void ages_inexact_until(Instant when) { inexact_until_ = std::max(inexact_until_, when); }
  void wall_stepped(bool ahead);
  // After a step's writes the journal must hold what the server knows.
  void journaled(const std::vector<rendezvous::RunRecord>& journal,
                 const std::vector<rendezvous::RunRecord>& known);
  // Nothing is kept for ever: all that a server of `streams` open streams knows, and how many of
  // its members are connected.
  void bounded(const std::vector<rendezvous::RunRecord>& known, std::size_t connected,
               std::size_t streams);
  // What people are shown is what is.
  void shown(const std::vector<rendezvous::JobView>& view, std::size_t connected);
  // All of a step that was written, whatever else became of it.
  void server_wrote(const rendezvous::Event& event, const std::vector<rendezvous::Action>& actions);
  // `torn`: the server died before it had carried out all of its actions.
  void server_stepped(const rendezvous::Event& event,
                      const std::vector<rendezvous::Action>& actions, bool torn);
  void agent_started(std::size_t node);
  // Before the actions are carried out.
  void agent_stepped(const NodeTruth& node, const agent::Event& event,
                     const std::vector<agent::Action>& actions);
  // The first process of the world, by node, of which `is_it` is true; asked when workers start.
  using FindProcess = std::function<const Process*(const std::function<bool(const Process&)>&)>;
  void set_find_process(FindProcess find) { find_process_ = std::move(find); }

  // A worker of this generation failed by itself, was killed, or never came to be.
  void disturbed(const RunId& run, Generation generation) { disturbed_.insert({run, generation}); }

  // Long after the last agent: the server owes nobody anything.
  void long_after();
  // A living agent that runs workers must have been answered lately.
  void lease(const NodeTruth& node, Instant last_answer);

  // What happened, so that a test can tell a lively world from an empty one.
  std::map<std::string, std::uint64_t> tally;

 private:
  struct AgentRecord {
    bool finished = false;
    bool port_held = false;
    int ports_asked = 0;       // HoldMasterPort without an answer yet
    std::uint64_t orders = 0;  // StopOrders received, and streams on which they may be repeated
    std::uint64_t confirmed = 0;
    bool left = false;                   // a Leave was sent
    std::optional<Instant> server_left;  // ServerLeaving was read
    std::set<std::uint32_t> suspended;   // local ranks
    std::set<std::uint32_t> told_to_end;
    std::map<RunId, Generation> newest;  // generation started last
    std::uint32_t restarts_told = 0;
    RunId run;
    bool may_stop = false;                        // something ended the generation that runs
    std::map<std::uint64_t, Instant> heartbeats;  // sent, not answered
    Instant join_sent;
    Instant lease_from;  // the last message that was answered was sent then
  };
  struct ServerRecord {
    std::map<RunId, rendezvous::JobRecord> last;
    std::set<std::uint64_t> stops_open;
    std::set<RunId> over;
    std::deque<Instant> charged;  // restarts of the run below
    RunId charged_run;
    Instant started;
    bool leaves = false;  // it said so, and answers no more
  };
  struct Published {  // one generation of one run, as its nodes were told
    std::uint32_t world_size = 0;
    std::string master;
    std::string restart_count;
    std::map<std::uint32_t, std::size_t> rank_at;
  };
  using Key = std::tuple<std::uint64_t, RunId, Generation>;  // the first: life of the server
  struct Round {
    std::vector<MemberRanks> members;
  };

  // Lives of servers that share a journal are one, unless it lost what a life had written.
  std::uint64_t life_of(std::uint64_t server_life) const {
    return server_life < life_of_.size() ? life_of_[server_life] : server_life;
  }
  Instant own(const NodeTruth& node) const { return clock_.now() + node.ahead; }
  void check_join(SessionId session, const std::vector<rendezvous::Action>& actions);
  void check_heartbeat(SessionId session, const std::vector<rendezvous::Action>& actions);
  void check_order(const std::vector<rendezvous::Action>& actions);
  void note_stops(AgentRecord& record, const agent::Event& event);
  static void note_signal(AgentRecord& record, const agent::SignalWorker& order);
  void check_signal(const NodeTruth& node, const AgentRecord& record,
                    const agent::SignalWorker& order);
  void check_commit(const ServerMessage& message, const Commit& commit);
  void check_members(const ServerMessage& message, const Assignment& told, const std::string& key);
  void check_prepare(const ServerMessage& message, const Prepare& prepare);
  void check_persist(const rendezvous::JobRecord& record);
  void check_range(const rendezvous::Event& event, const rendezvous::JobRecord& record);
  void check_outcome(const RunId& run, const Outcome& outcome, const char* where);
  void check_charge(const RunId& run, const event::RestartScheduled& restart);
  void check_failed_generation(const rendezvous::Emit& emit, const event::GenerationFailed& failed);
  void note_torn(const rendezvous::Persist& write);
  void check_emit(const rendezvous::Emit& emit);
  void check_start(const NodeTruth& node, const agent::StartWorkers& start);
  void check_older(const NodeTruth& node, const agent::StartWorkers& start);
  void check_send(const NodeTruth& node, AgentRecord& record, const AgentMessage& message);
  void check_finish(const NodeTruth& node, AgentRecord& record, const agent::Finish& finish);
  bool outdated_by_a_leap(const NodeName& node) const;
  bool excused(const Process& process, const agent::StartWorkers& start) const;
  void note_streams(const rendezvous::Event& event);

  const Scheduler& clock_;
  const SimOptions& options_;
  FindProcess find_process_;
  std::optional<std::string> failure_;
  std::map<std::size_t, AgentRecord> agents_;
  ServerRecord server_;
  std::uint64_t server_life_ = 0;
  std::vector<std::uint64_t> life_of_{0};   // by life
  std::optional<ServerRecord> after_loss_;  // what the next server knows of the runs
  bool ever_lost_tail_ = false;
  bool stepped_back_ = false;  // the time of day did
  std::optional<Instant> fence_void_;
  std::map<RunId, rendezvous::NodeRange> ranges_;  // of its nodes, as operators made them
  std::set<NodeName> members_;                     // nodes that the current server ever accepted
  std::map<std::pair<RunId, Generation>, std::set<NodeName>> met_;  // … when it committed
  std::map<SessionId, NodeName> streams_;
  std::map<NodeName, SessionId> current_stream_;  // accepted last
  std::map<NodeName, Instant> stream_lost_;       // of those without a stream: since when
  std::set<NodeName> left_;                       // said Leave
  std::set<NodeName> unread_leaves_;              // leave, and no server has read it
  std::set<NodeName> confined_;                   // sit out, as the events say
  std::set<std::pair<RunId, NodeName>> drained_;  // … and go for good, until they join anew
  std::set<std::pair<RunId, Generation>> disturbed_;
  std::map<std::pair<RunId, Generation>, Instant> began_;  // when it was committed
  Instant inexact_until_;
  std::set<RunId> goodbyes_;  // runs whose server said that it leaves
  std::map<std::pair<NodeName, Attempt>, std::uint16_t> ports_;  // held for rank 0
  std::map<Key, Published> published_;
  std::map<std::string, Round> rounds_;
  std::map<std::pair<std::uint64_t, RunId>, Outcome> outcomes_;
  std::set<RunId> forgotten_;
  std::map<RunId, Generation> recovered_;        // the server came back to it, and it goes on
  std::map<NodeName, Instant> written_off_;      // lost, evicted …: when last
  std::map<NodeName, Instant> accepted_;         // when last
  std::map<NodeName, Incarnation> incarnation_;  // as last accepted
};

}  // namespace muster::sim
