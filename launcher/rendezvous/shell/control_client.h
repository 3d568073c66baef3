// SPDX-License-Identifier: Apache-2.0
//
// An operator's side of the Control service, and the question of the hosting rules: who answers
// at this endpoint? Used by `muster status`, `muster stop` and its like, and `muster run` before it
// binds.
//
// Thread rule: the blocking functions may be called from any thread but one that runs a server's
// io loop. probe_async belongs to the io thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

#include "launcher/rendezvous/core/rendezvous.h"
#include "proto/base/time.h"
#include "proto/transport/credentials.h"

namespace muster::rendezvous {

// Where a server is. `unix_path` wins where set.
struct ControlTarget {
  std::string host;
  int port = 0;
  std::string unix_path;
  transport::Credentials credentials;
};

// What Describe answers.
struct ServerDescription {
  std::string server_instance;
  std::string version;
  std::string host;
  std::string user;
  std::int64_t pid = 0;
  std::vector<JobView> jobs;
  std::string left_out;  // of `jobs`, for its size, in words; empty: nothing
};

// Who answered.
struct Answerer {
  enum class Kind : std::uint8_t {
    kMuster,    // `server` says which
    kNothing,   // refused, unreachable, or the name is unknown: nobody listens
    kStranger,  // something answers that is not Muster
    kSilent     // nothing came back in time
  };
  Kind kind = Kind::kNothing;
  std::string text;          // one line in words
  std::string addr;          // numeric address reached; empty where none was
  ServerDescription server;  // kMuster; without jobs
  // It wants a token, or another one; or one of the two does not take the other's certificate.
  bool unauthenticated = false;
};

// All jobs, or the one named. Errors: kUnavailable (nobody or a stranger answers),
// kDeadlineExceeded, kUnauthenticated.
absl::StatusOr<ServerDescription> describe(const ControlTarget& target, Duration timeout,
                                           const JobId& job = "");

// Gives an order for a job; returns the server's words. Errors: as describe(), and
// kPermissionDenied where the server takes no orders at this door, kNotFound for an unknown job or
// node, kFailedPrecondition for what cannot be done now.
absl::StatusOr<std::string> operate(const ControlTarget& target, const JobId& job,
                                    const Order& order, const std::string& by, Duration timeout);

Answerer probe(const ControlTarget& target, Duration timeout);

// As probe(), without blocking: `answered` is called once on the io thread. Destroying the
// returned handle cancels it; nothing is called then.
class Probe {
 public:
  virtual ~Probe() = default;
};
std::unique_ptr<Probe> probe_async(boost::asio::io_context& io, const ControlTarget& target,
                                   Duration timeout, std::function<void(Answerer)> answered);

}  // namespace muster::rendezvous
