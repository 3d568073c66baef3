// SPDX-License-Identifier: Apache-2.0
//
// Mutual TLS for connections that gRPC is handed as descriptors. Debian's gRPC takes only plain
// ones, so a pump stands between: it speaks TLS on the socket and plain bytes on a socket pair
// whose other end gRPC gets. Pumps run on one thread of their own, started with the first of them:
// neither handshakes nor bulk data hold up an io loop, and last words still leave while the io
// thread waits for gRPC.
//
// Both sides show a certificate that the other's CA file must vouch for; whoever connects also asks
// that it is for the name or address that it connected to. TLS 1.2 at least, no session tickets.
// Files that change are read anew before the next handshake; what cannot be used is said once and
// the one before stays.
//
// Source: RFC 8446, RFC 6125 (names).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "proto/base/time.h"
#include "proto/transport/file.h"
#include "proto/transport/loop_door.h"

namespace muster::transport {

// A PEM file, and where its path was given: both head every message about it.
struct TlsFile {
  std::string path;
  std::string origin;  // "--tls-cert"
};

struct TlsFiles {
  TlsFile cert;  // this process's, then those between it and the CA
  TlsFile key;   // of `cert`, without a passphrase; may be the same file
  TlsFile ca;    // who vouches for others
};

// How a handshake ended.
struct TlsResult {
  enum class Kind : std::uint8_t {
    kConnected,
    kUntrusted,  // one of the two does not take the other's certificate
    kNotTls,     // the other side speaks something else
    kBroken      // closed, reset, too slow, or out of descriptors
  };
  Kind kind = Kind::kBroken;
  File file;         // kConnected: plain bytes; non-blocking, close-on-exec
  std::string text;  // else: why, to follow the other's name and ": "
};

class Tls {
 public:
  using Done = std::function<void(TlsResult)>;

  // `say`: lines about files that changed; called on any thread. Errors: kNotFound; and
  // kInvalidArgument for what is no certificate or key, a key of another certificate, one that
  // wants a passphrase, a certificate that has expired.
  static absl::StatusOr<std::shared_ptr<Tls>> load(TlsFiles files,
                                                   std::function<void(const std::string&)> say);
  // Handshakes are given up; open connections whose plain end is closed may still send what they
  // were given, for 500 ms.
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Each takes a connected socket, and calls `done` once through `loop`, unless that is closed.
  // From connect() `done` comes with the server's first bytes: before, a client does not know
  // whether its certificate was taken. `host`: as the user wrote it, name or numeric address.
  // Thread rule: any thread.
  void connect(std::shared_ptr<LoopDoor> loop, File socket, const std::string& host,
               Duration timeout, Done done);
  void accept(std::shared_ptr<LoopDoor> loop, File socket, Duration timeout, Done done);

 private:
  struct State;
  explicit Tls(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What whoever answers to plain bytes gets from a server that speaks TLS: an alert, version 3.1,
// "protocol version" (RFC 8446, section 6.2).
inline constexpr std::string_view kTlsAlert("\x15\x03\x01\x00\x02\x02\x46", 7);

}  // namespace muster::transport
