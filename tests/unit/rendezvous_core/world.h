// SPDX-License-Identifier: Apache-2.0
//
// A small world around the rendezvous machine: nodes that mostly keep to the protocol, streams
// that break, agents that die, and a judge that checks every action against the invariants of
// rendezvous.h. Everything is drawn from one seed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::rendezvous::test {

struct Node;

// Watches actions; a broken invariant is a line in `broken`.
class Judge {
 public:
  void said(const AgentSaid& event);
  void acted(const Event& event, const std::vector<Action>& actions);
  void stream_over(SessionId session) { open_.erase(session); }
  void server_lost_state();
  // Accepted by a server that may know less than the node does.
  void came_back(const Node& node);
  // No worker lives on `node` any more.
  void stopped(const NodeName& node) { running_.erase(node); }

  std::vector<std::string> broken;
  int commits = 0;
  int outcomes = 0;
  int adoptions = 0;

 private:
  void check(bool holds, const std::string& what);
  void sent(const Send& send);
  void prepared(const Send& send, const Prepare& prepare);
  void committed(const Send& send);
  void emitted(const Emit& emit);
  void persisted(const Persist& persist);

  struct Run {
    Generation committed = kNoGeneration;
    std::optional<Outcome> outcome;
    bool over = false;
  };
  std::set<SessionId> open_;
  SessionId joining_ = 0;  // stream of the Join of this step
  int replies_ = 0;        // to it
  std::map<RunId, Run> runs_;
  std::map<std::pair<Generation, Attempt>, Prepare> prepares_;
  std::map<NodeName, Generation> running_;
  std::map<NodeName, Incarnation> incarnations_;
  std::set<Generation> open_stores_;
  JobRecord record_;
  bool persisted_ = false;
  std::uint32_t most_restarts_ = 0;  // no bound on the total where there is a window
};

struct Node {
  NodeFacts facts;
  SessionId session = 0;  // 0: no stream
  SessionId accepted_on = 0;
  bool alive = false;   // the agent
  bool silent = false;  // the agent is frozen, its stream open
  Envelope known;
  Reattach reattach;
  std::optional<Prepare> prepare;
  Generation prepared = kNoGeneration;
  std::set<std::uint32_t> live;  // ranks
  std::vector<std::uint32_t> done;
  bool stop_ordered = false;
  Generation stop_generation = kNoGeneration;
  bool leaving = false;
  std::optional<Outcome> outcome;
};

class World {
 public:
  explicit World(std::uint64_t seed);

  // `count` random happenings.
  void stir(int count);
  // From now on everybody behaves, and workers succeed. True if the job then ends in time.
  bool calm_down();

  const Judge& judge() const { return judge_; }
  // Hash of everything that was done: two worlds of one seed are equal.
  std::uint64_t trace() const { return trace_; }

 private:
  bool chance(unsigned percent) { return rng_.below(100) < percent; }
  Node& any() { return nodes_[rng_.below(nodes_.size())]; }
  void happen();
  void advance(Duration by);
  void step(const Event& event);
  void hear(const Send& send);
  void close(SessionId session);
  void say(Node& node, AgentBody body, Generation generation);
  void join(Node& node);
  void kill_agent(Node& node);
  void worker_ends(Node& node);
  void answer(Node& node);
  void confirm(Node& node);
  void nonsense(Node& node);
  void lose_server();
  void behave(Node& node);
  void beat();

  Rng rng_;
  JobSpec spec_;
  Rendezvous machine_;
  Judge judge_;
  std::vector<Node> nodes_;
  Instant now_;
  SessionId last_session_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t requests_ = 0;
  std::uint64_t trace_ = 0;
  bool over_ = false;
  bool restarted_ = false;
};

}  // namespace muster::rendezvous::test
