// SPDX-License-Identifier: Apache-2.0
//
// One attempt to reach a Muster server: resolve, connect, and look at the first bytes. A gRPC
// server of ours speaks first (an HTTP/2 SETTINGS frame), so the first bytes tell it from a
// stranger before gRPC is started at all. A peer that stays silent for half of the time is sent
// the HTTP/2 preface to make it talk: a web server then answers in HTTP/1 and is recognised.
// With TLS all of that happens inside of it; a Unix socket is never asked for TLS.
//
// Names are resolved anew each time, on a thread of its own: a resolver that hangs delays neither
// the loop nor the end of the process. Proxy variables are not consulted.
//
// Thread rule: io thread. The callback is posted, never made from inside start().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "proto/base/time.h"
#include "proto/transport/file.h"
#include "proto/transport/tls.h"

namespace muster::transport {

// `unix_path` wins where set.
struct Endpoint {
  std::string host;
  int port = 0;
  std::string unix_path;
};

// "host:port", "[::1]:port" or the path: for people.
std::string to_text(const Endpoint& endpoint);

struct Dialed {
  enum class Kind : std::uint8_t {
    kConnected,  // `file` is connected to something that speaks HTTP/2 first
    kNothing,    // name unknown, refused, unreachable, or closed at once
    kStranger,   // it speaks, but not our protocol
    kUntrusted,  // it speaks TLS, and one of the two does not take the other's certificate
    kSilent      // no answer in time: to the name, the connection, or on it
  };
  Kind kind = Kind::kNothing;
  File file;         // kConnected; plain bytes, non-blocking, close-on-exec
  std::string addr;  // numeric address reached; empty for Unix sockets and where none was
  std::string text;  // one line in words, unless connected
};

class Dialer {
 public:
  using Done = std::function<void(Dialed)>;

  // `done` is called once, unless the dialer is destroyed first. `tls`: nullptr for plain bytes.
  static std::unique_ptr<Dialer> start(boost::asio::io_context& io, Endpoint endpoint,
                                       std::shared_ptr<Tls> tls, Duration timeout, Done done);
  ~Dialer();
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

 private:
  struct State;
  explicit Dialer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace muster::transport
