// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous server as a whole: a ServerCore and the doors to it. Doors are plain listening
// sockets of our own; the gRPC server behind one is created when the first connection arrives
// and is handed the accepted descriptor. A server nobody connects to costs a socket.
//
// Who may do what. Unix socket (directory 0700, same user): control. TCP: agents and read-only
// status; stop needs the token, or, where the server has none, TLS or a listener on loopback. With
// a token every call over TCP needs it, with TLS every connection.
//
// Thread rule: every member and every callback runs on the io thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

#include "launcher/rendezvous/shell/server_core.h"

namespace muster::rendezvous {

class RendezvousServer {
 public:
  RendezvousServer(boost::asio::io_context& io, ServerOptions options);
  // Closes every door and stream at once. For a farewell call stop() first.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  // Opens a TCP door for agents and operators and returns its port. `host` is a name or numeric
  // address; empty: every address of this machine. Port 0: any free one. May be called again.
  // Errors: kAlreadyExists, the address is in use; kNotFound, `host` is no address of this
  // machine (or unknown); kPermissionDenied, a privileged port; kUnavailable, anything else.
  absl::StatusOr<int> listen(const std::string& host, int port);

  // Opens the control door at `path`. Its directory is created with mode 0700 where missing.
  // Errors: kAlreadyExists, a live server has it; kFailedPrecondition, the directory is open to
  // others; kInvalidArgument, the path is too long; kUnavailable, anything else.
  absl::Status listen_unix(const std::string& path);

  // The agent of this process.
  std::unique_ptr<LocalSession> attach_local(LocalSession::Callbacks callbacks);

  void operate(JobId job, std::string by, Order order, ServerCore::Answered answered);
  std::vector<JobView> view() const;

  // Publishes that this server goes away (`server_leaving`), closes doors and streams, and calls
  // `done` once everything said has left or 500 ms have passed.
  void stop(std::string reason, std::function<void()> done);
  // As stop(), but the jobs do not end: agents go on within their server grace and attach to the
  // server that is started next.
  void close(std::string reason, std::function<void()> done);

 private:
  void say_farewell(std::function<void()> done);

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::rendezvous
