// SPDX-License-Identifier: Apache-2.0
//
// A rendezvous machine and the few nodes that talk to it, all of it decided by the bytes of an
// input. Nodes remember what they were told, so that one byte can be the right answer; other
// bytes make it a wrong, late or invented one.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/server_judge.h"

namespace muster::fuzz {

class ServerWorld {
 public:
  explicit ServerWorld(Input& input);

  // The next thing that happens.
  void act();
  // Nobody says anything any more: in the end the machine must know nothing and want nothing.
  void fall_silent();

  const std::vector<rendezvous::RunRecord>& journal() const { return judge_.journal(); }
  Instant now() const { return now_; }

 private:
  struct Node {
    NodeFacts facts;
    JobId job;
    SessionId session = 0;  // 0: no stream
    Envelope known;
    Reattach back;
    std::optional<Prepare> prepare;
    Generation prepared = kNoGeneration;
    MemberRanks ranks;
    std::optional<Generation> stop;
  };

  rendezvous::Order order(const Node& node);
  void step(const rendezvous::Event& event);
  void hear(const rendezvous::Send& send);
  void close(SessionId session);
  Node* holder(SessionId session);
  void say(Node& node, AgentBody body, Generation generation);
  void say_raw(const Node& node, const AgentMessage& message);
  void join(Node& node, bool again);
  void answer(Node& node);
  void exit(Node& node);
  void beat(Node& node);
  void said_by(Node& node);
  void invent(Node& node);
  void pass();
  void tick();
  void lose(Node& node);
  void restart();
  rendezvous::Options options() const;

  Input& input_;
  JobSpec spec_;
  rendezvous::Limits limits_;
  ServerJudge judge_;
  rendezvous::Rendezvous machine_;
  std::vector<Node> nodes_;
  Instant now_;
  SessionId last_session_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t requests_ = 0;
  bool leaves_ = false;
};

}  // namespace muster::fuzz
