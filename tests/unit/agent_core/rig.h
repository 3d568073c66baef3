// SPDX-License-Identifier: Apache-2.0
//
// One agent machine on a table: events by hand, the actions of the last step to look at.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/core/agent.h"
#include "agent/core/stop_ladder.h"

namespace muster::agent {

inline AgentConfig test_config(std::uint32_t slots = 2, std::uint32_t nodes = 1) {
  AgentConfig config;
  config.spec.job = "j";
  config.spec.min_nodes = nodes;
  config.spec.max_nodes = nodes;
  config.node.name = "a";
  config.node.host = "a";
  config.node.slots = slots;
  config.argv = {"/bin/train", "--rank", "${local_rank}"};
  config.environment = {{"PATH", "/bin"}, {"OMP_NUM_THREADS", "4"}};
  config.endpoint = "a:29400";
  return config;
}

class Rig {
 public:
  explicit Rig(AgentConfig config) : config_(config), agent(std::move(config)) {}

  // The actions of one step, kept for the questions below.
  std::vector<Action>& step(const Event& event) {
    last = agent.step(event, now);
    return last;
  }
  std::vector<Action>& said(ServerBody body, Generation generation = kNoGeneration) {
    ServerMessage message;
    message.envelope.job = config_.spec.job;
    message.envelope.run = run;
    message.envelope.generation = generation;
    message.envelope.node = config_.node.name;
    message.envelope.incarnation = incarnation;
    message.envelope.epoch = epoch;
    message.body = std::move(body);
    return step(ServerSaid{std::move(message)});
  }
  // Moves the clock and ticks at every deadline on the way; `last` collects all their actions.
  std::vector<Action>& pass(Duration duration) {
    const Instant end = now + duration;
    std::vector<Action> all;
    for (auto due = agent.next_deadline(); due && *due <= end; due = agent.next_deadline()) {
      now = std::max(now, *due);
      for (Action& action : agent.step(Tick{}, now))
        all.push_back(std::move(action));
    }
    now = end;
    last = std::move(all);
    return last;
  }

  // ---- longer ways
  void join() {
    step(Started{});
    step(LinkUp{});
    accept();
  }
  void accept() {
    JoinAccepted accepted;
    accepted.policy = config_.spec.policy;
    said(accepted);
  }
  Assignment assignment(Generation generation, std::uint32_t nodes = 1) const {
    Assignment out;
    out.generation = generation;
    const std::uint32_t slots = config_.node.slots;
    for (std::uint32_t i = 0; i < nodes; ++i) {
      out.members.push_back({std::string(1, static_cast<char>('a' + i)), i, i * slots, slots});
    }
    out.world_size = nodes * slots;
    out.master_addr = "127.0.0.1";
    out.max_restarts = 3;
    return out;
  }
  void form(Generation generation, std::uint32_t nodes = 1, Attempt attempt = 0) {
    form(assignment(generation, nodes), attempt);
  }
  void form(const Assignment& a, Attempt attempt = 0) {
    if (run.empty()) run = "r1";
    said(Prepare{attempt, a}, a.generation);
    if (a.group_rank == 0) step(MasterPortHeld{attempt, 20001});
    said(Commit{attempt, 20001}, a.generation);
  }
  void spawn_all() {
    for (std::uint32_t i = 0; i < config_.node.slots; ++i)
      step(WorkerSpawned{i, 100 + i});
  }
  void run_generation(Generation generation, std::uint32_t nodes = 1) {
    form(generation, nodes);
    spawn_all();
  }
  std::vector<Action>& ended(std::uint32_t local_rank, ExitStatus status) {
    WorkerEnded event;
    event.local_rank = local_rank;
    event.pid = 100 + local_rank;
    event.status = std::move(status);
    event.order = ++order_;
    return step(event);
  }
  static ExitStatus code(int value) { return {ExitStatus::Kind::kExited, value, false, ""}; }
  static ExitStatus killed(int signal) { return {ExitStatus::Kind::kSignaled, signal, false, ""}; }
  // The server answers the last heartbeat of the last step.
  std::vector<Action>& answer() {
    const std::vector<Heartbeat> beats = sent<Heartbeat>();
    REQUIRE_FALSE(beats.empty());
    return said(HeartbeatAck{beats.back().sequence});
  }
  std::vector<Action>& gone(std::uint32_t local_rank) { return step(WorkerGone{local_rank}); }

  // ---- questions about the last step
  template <typename A>
  std::vector<A> all() const {
    std::vector<A> found;
    for (const Action& action : last) {
      if (const A* one = std::get_if<A>(&action)) found.push_back(*one);
    }
    return found;
  }
  template <typename A>
  A only() const {
    const std::vector<A> found = all<A>();
    REQUIRE(found.size() == 1);
    return found.front();
  }
  template <typename A>
  bool has() const {
    return !all<A>().empty();
  }
  template <typename B>
  std::vector<B> sent() const {
    std::vector<B> found;
    for (const agent::Send& send : all<Send>()) {
      if (const B* body = std::get_if<B>(&send.message.body)) found.push_back(*body);
    }
    return found;
  }
  // "9 group", "15 leader": the signals of the last step to this worker, in order.
  std::vector<std::string> signals(std::uint32_t local_rank) const {
    std::vector<std::string> found;
    for (const SignalWorker& signal : all<SignalWorker>()) {
      if (signal.local_rank != local_rank) continue;
      const char* scope = signal.scope == SignalScope::kLeader        ? " leader"
                          : signal.scope == SignalScope::kGroup       ? " group"
                          : signal.scope == SignalScope::kBeyondGroup ? " beyond"
                                                                      : " descendants";
      found.push_back(std::to_string(signal.signal) + scope);
    }
    return found;
  }
  bool says(const std::string& part) const {
    for (const Say& line : all<Say>()) {
      if (line.text.find(part) != std::string::npos) return true;
    }
    return false;
  }
  Phase phase() const { return agent.view().phase; }

 private:
  AgentConfig config_;
  std::uint64_t order_ = 0;

 public:
  Agent agent;
  Instant now{};
  RunId run;
  Incarnation incarnation = 7;
  ServerEpoch epoch = 1;
  std::vector<Action> last;
};

using Signals = std::vector<std::string>;
inline const Signals kKilled{"9 group", "9 descendants"};

}  // namespace muster::agent
