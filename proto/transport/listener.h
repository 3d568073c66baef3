// SPDX-License-Identifier: Apache-2.0
//
// A listening socket on the io loop that hands over accepted descriptors. Own sockets instead of
// gRPC's listeners for three reasons: the exact error of a bind is known, the gRPC server behind
// it need not exist before somebody connects, and nothing is inherited by workers.
//
// Thread rule: io thread. The callback may destroy the listener.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

namespace muster::transport {

class Listener {
 public:
  // `fd`: accepted, non-blocking, close-on-exec; the callee owns it. `peer_addr`: numeric address
  // of the other side; empty for a Unix socket.
  using OnConnection = std::function<void(int fd, std::string peer_addr)>;

  // `host`: numeric address, name (resolved here, blocking), or empty for every address of this
  // machine. Errors: kAlreadyExists, in use; kNotFound, not an address of this machine or an
  // unknown name; kPermissionDenied; kUnavailable, anything else.
  static absl::StatusOr<std::unique_ptr<Listener>> tcp(boost::asio::io_context& io,
                                                       const std::string& host, int port,
                                                       OnConnection on_connection);

  // A socket file for processes of this user (and root) only: the directory is created with mode
  // 0700 or must have it, and the other side's user is checked. A file left by a dead process is
  // replaced; the file is removed with the listener. Errors: kAlreadyExists, a live listener has
  // it; kFailedPrecondition, the directory belongs or is open to others; kInvalidArgument, the
  // path is longer than a socket's may be; kUnavailable, anything else.
  static absl::StatusOr<std::unique_ptr<Listener>> unix_socket(boost::asio::io_context& io,
                                                               const std::string& path,
                                                               OnConnection on_connection);

  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const;             // TCP
  std::string address() const;  // TCP: numeric address bound; "::" or "0.0.0.0" for all

 private:
  struct State;
  explicit Listener(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace muster::transport
