// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous server without its network: it drives the pure machine, keeps the workers'
// key-value store, writes the journal, arms one timer, and passes messages between the machine
// and *sessions*. A session is one agent's stream: over gRPC (attach_stream.cc) or in this process
// (attach_local). Nothing here includes gRPC, so a server whose only agent lives in the same
// process starts none of it.
//
// Thread rule: every member and every callback runs on the io thread. No callback is made from
// inside a call; callbacks are posted to the io loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <boost/asio/io_context.hpp>

#include "launcher/rendezvous/core/rendezvous.h"
#include "launcher/rendezvous/shell/journal.h"
#include "proto/base/messages.h"
#include "proto/base/store.h"
#include "proto/transport/credentials.h"
#include "proto/transport/grpc_settings.h"

namespace muster::rendezvous {

struct ServerOptions {
  // For the machine. `unix_us_at_origin` is filled in by the server.
  Options machine;
  std::uint64_t seed = 0;  // jitter and run ids
  std::string version;     // for operators
  std::string user;        // whose server this is, for operators

  // With a token every call over TCP must carry it; with TLS every connection over TCP speaks it.
  // Without either, a listener beyond loopback takes joins, heartbeats, the store and read-only
  // status, and nothing else.
  transport::Credentials credentials;
  // Connections that TLS refused, one line each, seldom.
  std::function<void(const std::string&)> say;

  // Every event of every job, in order (--server-events, the console).
  std::function<void(const JobId&, const RunId&, const JobEvent&)> on_event;
  // The machine's JobOver: every reachable member knows the outcome.
  std::function<void(const JobId&, const RunId&, const Outcome&)> on_job_over;
  // The journal failed: the server has closed all sessions and does nothing more.
  std::function<void(absl::Status)> on_broken;

  std::unique_ptr<Journal> journal;  // nullptr: what this server knows dies with it
  JournalContents written;           // what journal->read() gave; the server goes on from it

  // What may wait for one slow reader before its stream is closed and counts as lost.
  std::size_t max_queued_bytes = 16U << 20U;
  std::size_t max_queued_messages = 4096;
  // What may wait on all streams together before large answers of the store are held back.
  std::size_t max_outgoing_bytes = 256U << 20U;
  // What all connections of a door may take, with the messages that arrive on them.
  std::size_t max_incoming_bytes = transport::kMaxGrpcMemoryBytes;
  std::size_t max_sessions = 65536;
  // A stream on which no join is accepted for so long is closed: it would keep its place for ever.
  Duration join_within = 30s;
};

// One agent in this process. Destroying it ends the session, as a broken stream would.
class LocalSession {
 public:
  struct Callbacks {
    std::function<void(ServerMessage)> said;
    std::function<void(StoreReply)> store_said;
    // The server ended the session, after everything said before. Not called after close().
    std::function<void(std::string reason)> closed;
  };

  virtual ~LocalSession() = default;
  // Both are ignored after `closed` or close().
  virtual void send(AgentMessage message) = 0;
  virtual void store(StoreRequest request) = 0;
  // Ends the session after what was sent; no callback follows.
  virtual void close() = 0;
};

// Where a session's messages go. Calls come on the io thread and must not call back.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void say(const ServerMessage& message) = 0;
  virtual void say(const StoreReply& reply) = 0;
  // No call follows. Everything said before still leaves.
  virtual void finish(const std::string& reason) = 0;
};

class Outgoing;

class ServerCore {
 public:
  ServerCore(boost::asio::io_context& io, ServerOptions options);
  ~ServerCore();
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  const ServerOptions& options() const;
  // Where sinks count what they have not said yet.
  std::shared_ptr<Outgoing> outgoing() const;

  // ---- sessions. `sink` is kept until detach() or its finish().
  SessionId attach(std::shared_ptr<SessionSink> sink, std::string peer_addr);
  void agent_said(SessionId session, AgentMessage message);
  void store_asked(SessionId session, StoreRequest request);
  // The stream is gone; ignored for sessions that are already finished.
  void detach(SessionId session);

  // An agent in this process; the observed address is empty.
  std::unique_ptr<LocalSession> attach_local(LocalSession::Callbacks callbacks);

  // ---- operators. `answered` is called exactly once, unless the server is destroyed first.
  using Answered = std::function<void(const OrderAnswer& answer)>;
  // An empty job is the only one there is; `by` says who asks.
  void operate(JobId job, std::string by, Order order, Answered answered);
  std::vector<JobView> view() const;

  // Tells every agent that this server goes away and closes all sessions; later calls to
  // attach() are refused at once.
  void stop(std::string reason);
  // Closes all sessions and does nothing more: to the agents the server is gone until another one
  // takes its place.
  void close(std::string reason);
  // Sessions whose sink has not been finished.
  std::size_t open_sessions() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<ServerCore*> self_;  // expires with this; local sessions look here
};

}  // namespace muster::rendezvous
