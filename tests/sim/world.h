// SPDX-License-Identifier: Apache-2.0
//
// A whole job in one thread: one Rendezvous, N Agents, and around them a fake clock, fake streams
// (delay, breaks, half-open ends, stand-stills) and fake processes. Two phases, as in TigerBeetle's
// VOPR: faults strike as the options say and only safety is checked; then they stop, and every
// agent must come to its end within a bounded time.
//
// Deterministic: the same options give the same hash. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"
#include "proto/base/rng.h"
#include "tests/sim/checks.h"
#include "tests/sim/model.h"
#include "tests/sim/options.h"
#include "tests/sim/planted.h"
#include "tests/sim/reasons.h"
#include "tests/sim/scheduler.h"

namespace muster::sim {

class Node;

// A stream between one agent process and one server process. In order, never lossy before it is
// cut; what would arrive after the cut does not.
struct Stream {
  SessionId session = 0;
  std::size_t node = 0;
  std::uint64_t agent_life = 0;
  std::uint64_t server_life = 0;
  std::string peer;         // the agent's address, as the server sees it
  bool agent_open = true;   // the agent was not told of its end and did not end it
  bool server_open = true;  // nor the server
  std::optional<Instant> cut_at;
  std::optional<Instant> to_server_lost;  // nothing arrives there from then on
  std::optional<Instant> to_agent_lost;
  Instant stalled_until;
  Instant last_to_agent;  // nothing overtakes
  Instant last_to_server;
};
using StreamPtr = std::shared_ptr<Stream>;

// What a world keeps of all that happens, in words: making them takes longer than the rest.
enum class Notes : std::uint8_t { kNone, kHash, kTrace };

class World {
 public:
  explicit World(const SimOptions& options, Notes notes = Notes::kNone);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Runs to the end, or to the first violation.
  void run();

  const std::optional<std::string>& failure() const { return checks.failure(); }
  std::uint64_t hash() const { return hash_; }  // of everything noted; Notes::kNone: 0
  std::uint64_t steps() const { return steps_; }
  const std::vector<std::string>& trace() const { return trace_; }

  // ---- for nodes
  SimOptions options;
  Scheduler clock;
  Rng rng;
  Checks checks;
  Planted planted;
  bool quiet = false;  // the fault phase is over
  // Sees what each step of the server orders to be written, and what the journal then holds.
  std::function<void(const std::vector<rendezvous::Action>&,
                     const std::vector<rendezvous::RunRecord>&)>
      on_journal;

  bool chance(double probability) { return !quiet && rng.unit() < probability; }
  Duration between(Duration low, Duration high);
  // `what`: a text, or what makes one.
  template <class What>
  void note(std::string_view who, const What& what) {
    ++steps_;
    if (notes_ == Notes::kNone) return;
    if constexpr (std::is_invocable_v<const What&>) {
      keep(who, what());
    } else {
      keep(who, what);
    }
  }
  StreamPtr connect(std::size_t node, std::uint64_t agent_life);  // null: refused
  Instant reachable_at(std::size_t node) const;                   // in the past: now
  void send_to_server(const StreamPtr& stream, AgentMessage message);
  void close_by_agent(const StreamPtr& stream);
  void agent_ended(std::size_t node);  // finished or killed
  void worker_ended(const Process& process, Ending why);
  void disturbed(const RunId& run, Generation generation) { checks.disturbed(run, generation); }

 private:
  void keep(std::string_view who, const std::string& what);

  // ---- server.cc
  void start_server();
  void kill_server();
  void step_server(const rendezvous::Event& event);
  Instant server_now() const { return clock.now() - server_behind_; }
  std::vector<rendezvous::Action> step_changed(const rendezvous::Event& event);
  void carry_out(rendezvous::Action&& action);
  void arm_server_timer(bool ticked);
  void judge(const rendezvous::Event& event, const std::vector<rendezvous::Action>& actions);
  void hear_forged();
  void remember();
  void lose_tail();

  // ---- network.cc
  void send_to_agent(const StreamPtr& stream, ServerMessage message);
  void close_by_server(SessionId session);
  void lose_at_server(const StreamPtr& stream);
  void cut(const StreamPtr& stream, Duration agent_notices, Duration server_notices);
  void notice_end(const StreamPtr& stream, Duration agent, Duration server);
  Duration delay();
  void bar(std::size_t node, bool to_server, bool to_agent, Duration length);
  void bar_one_way(std::size_t node);
  void partition();

  // ---- faults.cc
  void plan_faults();
  void repeat(double rate, std::function<void()> strike);
  void strike_node(std::size_t node, double rate, void (World::*strike)(std::size_t));
  void break_stream(std::size_t node);
  void half_open_stream(std::size_t node);
  void stall_stream(std::size_t node);
  void freeze_agent(std::size_t node);
  void kill_agent(std::size_t node);
  void signal_agent(std::size_t node);
  void suspend_agent(std::size_t node);
  void crash_server_soon();
  void crash_server();
  void stall_server();
  void leap_agent(std::size_t node);
  void leap_server();
  void end_hangs(bool by_order);
  void order(rendezvous::Order order);
  void order_scale();
  void order_drain();
  void end_faults();
  void watch_leases();
  bool all_ended();

  std::vector<std::unique_ptr<Node>> nodes_;
  std::size_t ended_ = 0;  // of these, the first that all ended: when quiet, no agent starts
  std::unique_ptr<rendezvous::Rendezvous> server_;
  std::uint64_t server_life_ = 0;
  std::uint64_t server_timer_ = 0;
  int server_spins_ = 0;
  std::optional<Instant> server_due_;  // when it wants its next tick, as it said last
  Duration server_behind_{0};          // what its clock leaves out; negative: it leapt ahead
  Duration wall_step_{0};              // of the time of day, since the first server started
  bool server_stalls_ = false;
  std::vector<rendezvous::Event> server_unread_;  // while it stands still
  std::size_t ends_unread_ = 0;                   // of streams, among these
  bool server_ends_with_host_ = false;
  bool crashes_in_step_ = false;                // the next step that does something is its last
  std::vector<rendezvous::RunRecord> journal_;  // by age
  struct Memory {  // as it was once, and what the judges of servers that wrote it knew
    std::vector<rendezvous::RunRecord> journal;
    Model model;
    Reasons reasons;
  };
  std::vector<Memory> memories_;  // the newest last; only where a tail may be lost
  struct Barrier {                // nothing gets through before
    Instant to_server;
    Instant to_agent;
  };
  std::vector<Barrier> barriers_;           // by node
  std::map<SessionId, StreamPtr> streams_;  // known to the current server
  SessionId last_session_ = 0;
  std::uint64_t last_request_ = 0;

  Model model_;
  Reasons reasons_;
  bool unheard_ = false;  // a planted bug forged what the server hears now
  Notes notes_;
  std::vector<std::string> trace_;
  std::uint64_t hash_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t judged_ = 0;
};

}  // namespace muster::sim
