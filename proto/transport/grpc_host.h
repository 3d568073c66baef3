// SPDX-License-Identifier: Apache-2.0
//
// A gRPC server without listeners: it is created when the first descriptor is handed to it.
//
// Thread rule: add() and shut_down() on the io thread; peer_addr() on any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "proto/transport/grpc_settings.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace muster::transport {

class GrpcHost {
 public:
  // `services` are borrowed until shut_down() has returned.
  // `memory`: what messages that arrive, and the connections themselves, may take together.
  explicit GrpcHost(std::vector<grpc::Service*> services, std::size_t memory = kMaxGrpcMemoryBytes);
  ~GrpcHost();  // shut_down()
  GrpcHost(const GrpcHost&) = delete;
  GrpcHost& operator=(const GrpcHost&) = delete;

  // Serves a connected descriptor, which it takes over.
  void add(int fd, std::string peer_addr);

  // `grpc_peer`: what ServerContextBase::peer() says. The numeric address given to add().
  std::string peer_addr(const std::string& grpc_peer) const;

  // Cancels all calls and waits until every reactor is done; then add() closes what it is given.
  // Reactors must end a cancelled call without the io thread, which waits here.
  void shut_down();

  bool started() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::transport
