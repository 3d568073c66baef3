// SPDX-License-Identifier: Apache-2.0
//
// A Rendezvous with one job, a clock that jumps from deadline to deadline, and agents that answer
// at once: what is left to see is when the machine itself decides.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"
#include "proto/base/rng.h"

namespace muster::rendezvous {

class Driver {
 public:
  // Nobody is lost: agents send no heartbeats of their own accord.
  Driver(JobSpec spec, std::uint64_t seed)
      : spec_(std::move(spec)), machine_(Options{}, Rng(seed)) {
    spec_.job = "j";
    spec_.policy.node_timeout = 24h * 365;
  }

  Instant now() const { return now_; }

  // Everything that is due up to and at `until`.
  void run_to(Instant until) {
    for (auto next = machine_.next_deadline(); next && *next <= until;
         next = machine_.next_deadline()) {
      now_ = std::max(now_, *next);
      step(Tick{});
    }
    now_ = until;
  }
  // Everything that is due up to `until` or until `seen` grows.
  template <class Seen>
  void run_until(Instant until, const Seen& seen) {
    const std::size_t before = seen.size();
    for (auto next = machine_.next_deadline(); next && *next <= until && seen.size() == before;
         next = machine_.next_deadline()) {
      now_ = std::max(now_, *next);
      step(Tick{});
    }
    if (seen.size() == before) now_ = until;
  }

  void join(const NodeName& node) {
    Agent& agent = agents_[node];
    agent.session = ++last_session_;
    NodeFacts facts;
    facts.name = facts.host = node;
    agent.envelope = {spec_.job, "", kNoGeneration, node, 0, 0};
    step(AgentSaid{agent.session, "10.0.0.1", {agent.envelope, Join{spec_, facts, std::nullopt}}});
  }
  // It says Leave and ends its stream.
  void leave(const NodeName& node) {
    say(node, Leave{});
    const SessionId session = agents_.at(node).session;
    agents_.erase(node);
    step(StreamLost{session});
  }
  void say(const NodeName& node, AgentBody body) {
    const Agent& agent = agents_.at(node);
    step(AgentSaid{agent.session, "10.0.0.1", {agent.envelope, std::move(body)}});
  }
  void worker_fails(const NodeName& node) {
    WorkerExited exited;
    exited.rank = ranks_.at(node);
    exited.pid = 7;
    exited.status.value = 1;
    say(node, exited);
  }
  void progresses(const NodeName& node, std::uint64_t step, std::uint64_t checkpoint) {
    say(node, Heartbeat{++beats_, {{ranks_.at(node), step, checkpoint, 0s}}});
  }

  // When what was ordered or told.
  std::vector<Instant> prepared;     // the first Prepare of each round
  std::vector<std::size_t> members;  // … and of how many nodes
  std::vector<Instant> grown;        // a generation was stopped for nodes that came late
  std::vector<std::pair<Instant, event::RestartScheduled>> restarts;
  std::vector<std::pair<Instant, Outcome>> outcomes;

 private:
  struct Agent {
    SessionId session = 0;
    Envelope envelope;
  };

  void step(Event event) {
    unheard_.push_back(std::move(event));
    if (steps_) return;
    steps_ = true;
    while (!unheard_.empty()) {
      const Event next = std::move(unheard_.front());
      unheard_.pop_front();
      for (const Action& action : machine_.step(next, now_))
        see(action);
    }
    steps_ = false;
  }

  void see(const Action& action) {
    if (const auto* emit = std::get_if<Emit>(&action)) {
      if (const auto* told = std::get_if<event::RestartScheduled>(&emit->event.body)) {
        restarts.emplace_back(now_, *told);
      }
      if (const auto* told = std::get_if<event::JobFinished>(&emit->event.body)) {
        outcomes.emplace_back(now_, told->outcome);
      }
    }
    const auto* send = std::get_if<Send>(&action);
    if (send == nullptr) return;
    const auto to = agents_.find(send->message.envelope.node);
    if (to == agents_.end() || to->second.session != send->session) return;
    to->second.envelope = send->message.envelope;
    answer(to->first, send->message.body);
  }

  void answer(const NodeName& node, const ServerBody& body) {
    if (const auto* prepare = std::get_if<Prepare>(&body)) {
      const Assignment& told = prepare->assignment;
      const std::pair round(told.generation, prepare->attempt);
      if (last_round_ != round) {
        prepared.push_back(now_);
        members.push_back(told.members.size());
      }
      last_round_ = round;
      ranks_[node] = told.members[told.group_rank].first_rank;
      say(node, PrepareAnswer{prepare->attempt, true, 29500, ""});
    } else if (std::holds_alternative<Commit>(body)) {
      say(node, WorkersStarted{{{ranks_.at(node), 7}}, 0s});
    } else if (const auto* stop = std::get_if<StopOrder>(&body)) {
      if (stop->planned && (grown.empty() || grown.back() != now_)) grown.push_back(now_);
      say(node, StopConfirmed{});
    }
  }

  JobSpec spec_;
  Rendezvous machine_;
  Instant now_;
  std::map<NodeName, Agent> agents_;
  std::map<NodeName, std::uint32_t> ranks_;
  SessionId last_session_ = 0;
  std::uint64_t beats_ = 0;
  std::pair<Generation, Attempt> last_round_{kNoGeneration, 0};
  std::deque<Event> unheard_;
  bool steps_ = false;
};

}  // namespace muster::rendezvous
