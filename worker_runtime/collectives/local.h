// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a group as threads of one process: what the tests of everything above run on, and
// the reference for the other backends. Payload is copied straight from the sender's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime {

// What the threads of one group share. Thread-safe.
class LocalGroup {
 public:
  // `deadline` bounds one exchange, end to end.
  LocalGroup(int size, std::int64_t generation,
             std::chrono::milliseconds deadline = std::chrono::minutes(5));
  ~LocalGroup();
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  // Rank `rank`'s end; used by one thread. Must not outlive the group.
  std::unique_ptr<Collectives> member(int rank);

  // Fault injection: from now on `rank` is gone, as if its process had been killed; its own next
  // call fails too.
  void lose(int rank);

 private:
  friend class LocalMember;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::runtime
