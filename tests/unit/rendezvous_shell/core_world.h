// SPDX-License-Identifier: Apache-2.0
//
// A ServerCore and its agents in one process, without gRPC.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/rendezvous/shell/server_core.h"
#include "tests/unit/rendezvous_shell/harness.h"

namespace muster::test {

// A server and agents on one io thread; torn down there, too.
class World {
 public:
  explicit World(rendezvous::ServerOptions options = server_options()) {
    options.on_event = [this](const JobId&, const RunId&, const JobEvent& event) {
      events.put(event_name(event.body));
    };
    options.on_job_over = [this](const JobId&, const RunId&, const Outcome& outcome) {
      over.put(outcome);
    };
    options.on_broken = [this](absl::Status why) { broken.put(std::move(why)); };
    thread.on_io(
        [&] { core = std::make_unique<rendezvous::ServerCore>(thread.io(), std::move(options)); });
  }
  ~World() {
    thread.on_io([&] {
      sessions.clear();
      core.reset();
    });
  }

  rendezvous::LocalSession& attach(Heard& heard) {
    return *thread.on_io([&] {
      rendezvous::LocalSession::Callbacks callbacks;
      // Copies: the server may speak until it is destroyed, which is after many a `heard`.
      callbacks.said = [said = heard.said](ServerMessage message) { said.put(std::move(message)); };
      callbacks.store_said = [store = heard.store](StoreReply reply) {
        store.put(std::move(reply));
      };
      callbacks.closed = [closed = heard.closed](std::string reason) {
        closed.put(std::move(reason));
      };
      sessions.push_back(core->attach_local(std::move(callbacks)));
      return sessions.back().get();
    });
  }

  void send(rendezvous::LocalSession& session, AgentMessage message) {
    thread.on_io([&] { session.send(std::move(message)); });
  }

  Inbox<std::string> events;
  Inbox<Outcome> over;
  Inbox<absl::Status> broken;
  std::unique_ptr<rendezvous::ServerCore> core;
  std::vector<std::unique_ptr<rendezvous::LocalSession>> sessions;
  IoThread thread;  // last: its loop ends first
};

// Joins one node of a one-node job and runs it up to its first generation.
inline void run_up(World& world, rendezvous::LocalSession& session, Heard& heard,
                   const JobId& job) {
  world.send(session, join_message(job, "a", 1, 1));
  REQUIRE(heard.next<JoinAccepted>());
  const auto prepare = heard.next<Prepare>();
  REQUIRE(prepare);
  const Generation generation = prepare->assignment.generation;
  Envelope envelope = heard.last;
  envelope.generation = generation;
  world.send(session, message_from(envelope, PrepareAnswer{prepare->attempt, true, 29999, ""}));
  REQUIRE(heard.next<Commit>());
  world.send(session, message_from(envelope, WorkersStarted{{{0, 4242}}, 1ms}));
  heard.last = envelope;
}

inline void finish_job(World& world, rendezvous::LocalSession& session, Heard& heard) {
  WorkerExited exited;
  exited.pid = 4242;
  world.send(session, message_from(heard.last, exited));
  const Envelope envelope = heard.last;
  const auto outcome = heard.next<OutcomeNotice>();
  REQUIRE(outcome);
  CHECK(outcome->outcome.kind == OutcomeKind::kSucceeded);
  world.send(session, message_from(envelope, OutcomeSeen{}));
}

}  // namespace muster::test
