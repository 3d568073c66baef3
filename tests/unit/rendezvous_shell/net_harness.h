// SPDX-License-Identifier: Apache-2.0
//
// A server with real doors on one io thread, and agents that dial it over loopback from another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/shell/grpc_link.h"
#include "launcher/rendezvous/shell/server.h"
#include "tests/unit/rendezvous_shell/harness.h"

namespace muster::test {

// One agent's end: a link and what came over it.
class NetAgent {
 public:
  // `patience`: both cores may be busy.
  NetAgent(IoThread& thread, int port, transport::Credentials credentials = {},
           std::string host = "127.0.0.1", Duration patience = 10s);
  ~NetAgent();
  NetAgent(const NetAgent&) = delete;
  NetAgent& operator=(const NetAgent&) = delete;

  // Opens; true: up, false: down (the reason is in `down`).
  bool open();
  void send(AgentMessage message);
  void store(StoreRequest request);
  void close();
  std::string dialed_addr();

  // Joins a one-node job and runs it up to its first generation.
  bool run_up(const JobId& job);
  // Its only worker exits 0; true once the job's outcome is known.
  bool finish_job();

  struct Down {
    std::string reason;
    bool speaks_muster = false;
  };
  Heard heard;
  Inbox<bool> up;
  Inbox<Down> down;
  std::function<void(StoreReply)> on_store;  // io thread; instead of heard.store

  agent::GrpcLink& link() { return *link_; }

 private:
  IoThread& thread_;
  std::unique_ptr<agent::GrpcLink> link_;
};

class NetServer {
 public:
  explicit NetServer(rendezvous::ServerOptions options = server_options());
  ~NetServer();
  NetServer(const NetServer&) = delete;
  NetServer& operator=(const NetServer&) = delete;

  int listen(const std::string& host = "127.0.0.1");
  absl::StatusOr<int> try_listen(const std::string& host, int port);
  absl::Status listen_unix(const std::string& path);
  std::vector<rendezvous::JobView> view();
  // Says farewell and waits until that has left.
  void stop(const std::string& reason);
  // Destroys the server, as a crash would.
  void kill();

  Inbox<Outcome> over;
  IoThread thread;

 private:
  std::unique_ptr<rendezvous::RendezvousServer> server_;
};

}  // namespace muster::test
