// SPDX-License-Identifier: Apache-2.0
//
// ServerLink to a server in the same process: no socket, no gRPC, no copy but one.
//
// Thread rule: as ServerLink; the io thread only.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "agent/shell/server_link.h"
#include "launcher/rendezvous/shell/server.h"

namespace muster::launcher {

class LocalLink : public agent::ServerLink {
 public:
  // `server` outlives this link.
  LocalLink(boost::asio::io_context& io, rendezvous::RendezvousServer& server);
  // Ends the session; no callback follows.
  ~LocalLink() override;

  void open(Callbacks callbacks) override;
  void send(AgentMessage message) override;
  void store(StoreRequest request) override;
  void close() override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::launcher
