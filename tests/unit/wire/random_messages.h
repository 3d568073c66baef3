// SPDX-License-Identifier: Apache-2.0
//
// Random but valid content for every message, by seed. `alternative` picks the body.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/messages.h"
#include "proto/base/rng.h"
#include "proto/base/store.h"

namespace muster::test {

class RandomMessages {
 public:
  explicit RandomMessages(std::uint64_t seed) : rng_(seed) {}

  AgentMessage agent_message(std::size_t alternative);
  ServerMessage server_message(std::size_t alternative);
  StoreRequest store_request();
  StoreReply store_reply();

  // Mutates one byte, or cuts or extends `bytes`.
  void damage(std::string& bytes);
  std::string noise(std::size_t most);

  std::uint32_t number(std::uint32_t below) {
    return static_cast<std::uint32_t>(rng_.below(below));
  }

 private:
  bool coin() { return rng_.below(2) == 0; }
  std::string name(bool may_be_empty = false);
  std::string text(std::size_t most = 200);
  Duration duration() { return Duration(static_cast<std::int64_t>(rng_.below(1ULL << 55U))); }
  template <class T, class Make>
  std::optional<T> maybe(Make make) {
    if (coin()) return std::nullopt;
    return make();
  }
  template <class Enum>
  Enum any(Enum last) {
    return static_cast<Enum>(rng_.below(static_cast<std::uint64_t>(last) + 1));
  }

  Envelope envelope();
  JobPolicy policy();
  JobSpec spec();
  NodeFacts facts();
  Fault fault();
  ArmedFault armed_fault();
  ExitStatus exit_status();
  Failure failure();
  Outcome outcome();
  Assignment assignment();
  std::vector<MemberRanks> members(std::uint32_t& world_size);
  JobEvent event();
  EventBody event_body();
  RankProgress progress();
  Join join();
  WorkerExited worker_exited();
  Waiting waiting();

  Rng rng_;
};

}  // namespace muster::test
