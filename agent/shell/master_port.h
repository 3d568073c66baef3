// SPDX-License-Identifier: Apache-2.0
//
// The workers' MASTER_PORT, held by rank 0's agent so that nobody takes it between choosing and
// use. The socket is bound without SO_REUSEADDR, which fails on any port that anyone holds or
// uses, and never listens; SO_REUSEADDR is set afterwards, and lets a worker that sets it too
// (as all process-group stores do) bind and listen beside it. Another agent's hold, made
// without it, is refused.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "agent/shell/unique_fd.h"
#include "proto/base/rng.h"

namespace muster::agent {

class MasterPort {
 public:
  explicit MasterPort(std::uint64_t seed);

  // Holds a port of [low, high], on all addresses, in place of any port held before. Starts
  // somewhere in the range and tries all of it. Not the port held last, unless it is the only
  // one of the range. Resource exhausted: none is free.
  // REQUIRES: 0 < low <= high.
  absl::StatusOr<std::uint16_t> hold(std::uint16_t low, std::uint16_t high);

  // Lets go. A port that is a whole range by itself stays held until the next hold(): with
  // connections of the last generation in TIME_WAIT it could not be bound again for a minute.
  void release();

  std::uint16_t port() const { return socket_.valid() ? port_ : 0; }

 private:
  Rng rng_;
  UniqueFd socket_;
  std::uint16_t port_ = 0;  // held now or last
  bool only_one_ = false;
};

}  // namespace muster::agent
