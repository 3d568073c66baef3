// SPDX-License-Identifier: Apache-2.0
//
// One door of the server: the gRPC services behind one listener. A door has its own gRPC server,
// so what a caller may do hangs on the door it came through and on nothing that could be forged.
//
// Thread rule: io thread. gRPC's threads only check messages and post them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/rendezvous/shell/server_core.h"

namespace muster::rendezvous {

enum class DoorKind : std::uint8_t {
  kControlSocket,  // Unix socket of this user: operators, no token asked
  kLoopback,       // TCP on this machine: agents and operators
  kNetwork         // TCP beyond: agents and readers; orders only with the token
};

class GrpcDoor {
 public:
  // `core` must outlive the door. `idle`: called, on the io thread, whenever the last call of
  // this door has ended.
  GrpcDoor(boost::asio::io_context& io, ServerCore& core, DoorKind kind,
           std::function<void()> idle);
  // Cancels every call and waits for gRPC to let go of them.
  ~GrpcDoor();
  GrpcDoor(const GrpcDoor&) = delete;
  GrpcDoor& operator=(const GrpcDoor&) = delete;

  // A connection was accepted; the descriptor is taken over. The first one starts gRPC.
  void connected(int fd, std::string peer_addr);

  // Calls that are not over.
  int open_calls() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::rendezvous
