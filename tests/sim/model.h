// SPDX-License-Identifier: Apache-2.0
//
// A second opinion on who is in a generation and who has which rank: a naive model that follows
// what the server hears and whom it took in, sent away or gave up, and then decides by itself.
// When a generation is published is the server's affair; whom it may contain is not.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/core/ranks.h"
#include "launcher/rendezvous/core/rendezvous.h"
#include "tests/sim/options.h"

namespace muster::sim {

class Model {
 public:
  explicit Model(const SimOptions& options) : options_(&options) {}

  // `remembers`: it read the journal of the one before.
  void server_started(bool remembers);
  // It sees that it stood still for `by`: what it waits for in a round it waits for longer.
  void stalled(Duration by);
  // A step of the server that was written down, with all that it decided; nullopt: agreed.
  std::optional<std::string> stepped(const rendezvous::Event& event,
                                     const std::vector<rendezvous::Action>& actions, Instant now);

 private:
  struct Node {
    rendezvous::Candidate who;
    Incarnation incarnation = 0;
    std::optional<SessionId> stream;
    bool leaves = false;
    bool works = false;  // its workers of `work` may live
    Generation work = kNoGeneration;
    std::uint32_t refusals = 0;
    Instant ask_again;
  };
  struct Round {
    Generation generation = kNoGeneration;
    Attempt attempt = 0;
    std::vector<MemberRanks> ranks;
    std::set<NodeName> silent;
    Instant due;

    bool has(const NodeName& node) const;
  };
  struct Run {
    std::map<NodeName, Node> nodes;
    std::set<NodeName> confined;               // in quarantine, as is written
    std::map<NodeName, std::uint32_t> places;  // in the generation committed last
    Generation generation = kNoGeneration;
    std::optional<Round> round;
    std::uint32_t max_nodes = 0;  // 0: as the job began
  };

  std::uint32_t max_nodes(const Run& run) const {
    return run.max_nodes > 0 ? run.max_nodes : options_->max_nodes;
  }
  void ordered(const rendezvous::OperatorAsked& asked,
               const std::vector<rendezvous::Action>& actions);

  void heard(const rendezvous::AgentSaid& said, const std::vector<rendezvous::Action>& actions,
             Instant now);
  void answered(Run& run, Node& node, const AgentMessage& message, Instant now);
  void time_passed(const std::vector<rendezvous::Action>& actions, Instant now);
  void set_aside(Node& node, Instant now) const;
  void written(const rendezvous::Persist& persist, const std::vector<rendezvous::Action>& actions);
  void sent(const rendezvous::Event& event, const rendezvous::Send& send, Instant now);
  void taken_in(const rendezvous::AgentSaid& said, const Join& join, const Envelope& envelope);
  void stream_ended(SessionId stream);
  void lost(const RunId& run, const NodeName& node);
  void prepared(Run& run, const Prepare& prepare, Instant now);
  void committed(Run& run, const ServerMessage& message);
  std::vector<MemberRanks> decide(const Run& run, Instant now) const;
  void disagree(std::string what) {
    if (!disagreement_) disagreement_ = std::move(what);
  }

  const SimOptions* options_;
  std::map<RunId, Run> runs_;
  std::map<SessionId, std::pair<RunId, NodeName>> streams_;
  std::optional<std::string> disagreement_;
};

}  // namespace muster::sim
