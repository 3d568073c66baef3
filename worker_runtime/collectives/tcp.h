// SPDX-License-Identifier: Apache-2.0
//
// The group over TCP: gloo's point-to-point layer as transport, our own header check and
// reductions on top (gloo's collectives end the process when counts differ).
//
// Bootstrap: every rank publishes its listening addresses in a key-value store, under keys that
// carry the generation, and connects to every other (full mesh).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime {

// Where ranks find each other. The store of the launcher, or anything that behaves like it.
// Called by one thread at a time.
class BootstrapStore {
 public:
  virtual ~BootstrapStore() = default;
  virtual absl::Status set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. kDeadlineExceeded when it does not appear in time.
  virtual absl::StatusOr<std::string> get(const std::string& key,
                                          std::chrono::milliseconds wait) = 0;
};

struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::int64_t generation = 0;
  std::string address;   // numeric, of this node; empty: the one that leads to `route_to`
  std::string route_to;  // MASTER_ADDR
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds deadline = std::chrono::minutes(5);  // of one exchange, end to end
};

// Blocks until the mesh stands. Errors: kDeadlineExceeded naming the rank that did not appear,
// kUnavailable when a peer went away meanwhile, kInvalidArgument for an address that is not ours.
// SIGPIPE must be ignored in this process (gloo writes without MSG_NOSIGNAL).
absl::StatusOr<std::unique_ptr<Collectives>> connect_tcp(const TcpOptions& options,
                                                         BootstrapStore& store);

// The numeric address of this host that packets to `host` leave from. No packet is sent.
absl::StatusOr<std::string> address_towards(const std::string& host);

}  // namespace muster::runtime
