// SPDX-License-Identifier: Apache-2.0
//
// The seam between an agent and the server it belongs to. Implementations: GrpcLink (a stream
// over the network) and, in the launcher, an in-process link to an embedded server, which starts
// no gRPC at all.
//
// Thread rule: every member is called, and every callback is made, on the io thread. No callback
// is made from inside a call of the same link; implementations post to the io loop.
#pragma once

#include <functional>
#include <string>

#include "proto/base/messages.h"
#include "proto/base/store.h"

namespace muster::agent {

class ServerLink {
 public:
  struct Callbacks {
    std::function<void()> up;  // the stream is open; send() may be used
    std::function<void(ServerMessage)> said;
    // The stream ended or could not be opened; `speaks_muster` as in agent::LinkDown.
    std::function<void(std::string reason, bool speaks_muster)> down;
    std::function<void(StoreReply)> store_said;
  };

  virtual ~ServerLink() = default;

  // Starts opening a stream; later exactly one of up or down. REQUIRES: none open or opening.
  virtual void open(Callbacks callbacks) = 0;
  // REQUIRES: up was called and down was not.
  virtual void send(AgentMessage message) = 0;
  // Forwards a worker's request; the answer comes as store_said with the same id, unless the
  // stream goes down first.
  virtual void store(StoreRequest request) = 0;
  // Ends the stream after what was sent has left; no callback follows.
  virtual void close() = 0;
};

}  // namespace muster::agent
