// SPDX-License-Identifier: Apache-2.0
//
// ServerLink over the network: one gRPC stream. Each open() resolves the endpoint anew and makes
// one attempt; whether and when to try again is the agent core's decision. The connection is
// made here and handed to gRPC as a descriptor, so that no name cache, proxy variable or hidden
// reconnect stands between the two machines, and a refusal, a silence and a stranger can be told
// apart.
//
// Thread rule: as ServerLink; the io thread only.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/shell/server_link.h"
#include "proto/base/time.h"
#include "proto/transport/credentials.h"

namespace muster::agent {

struct GrpcLinkOptions {
  std::string host;  // name or numeric address
  int port = 0;
  transport::Credentials credentials;
  // From open() to the server's answer: name, connection and handshake together.
  Duration connect_timeout = 1s;
  // What may wait for a server that does not read before the stream is given up.
  std::size_t max_queued_bytes = 16U << 20U;
};

class GrpcLink : public ServerLink {
 public:
  GrpcLink(boost::asio::io_context& io, GrpcLinkOptions options);
  // Ends the stream at once; no callback follows.
  ~GrpcLink() override;

  void open(Callbacks callbacks) override;
  void send(AgentMessage message) override;
  void store(StoreRequest request) override;
  void close() override;

  // Numeric address of the server, known from `up` on; empty before. For NodeFacts::dialed_addr.
  std::string dialed_addr() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
