// SPDX-License-Identifier: Apache-2.0
//
// The agent's book of its workers' open store requests: sends them over the link while there is
// one, matches replies, answers *stale* when the generation ends. It knows no gRPC; StoreProxy puts
// a service in front of it, tests talk to it directly.
//
// Each request is answered exactly once, unless it is withdrawn. While the link is down set, get
// and delete wait and are sent again when it is back; an add that was sent is answered
// kUnavailable, since nobody can know whether it was counted.
//
// Thread rule: io thread. Answers are given from inside the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "agent/shell/server_link.h"
#include "proto/base/ids.h"
#include "proto/base/store.h"
#include "proto/base/time.h"

namespace muster::agent {

class StoreBroker {
 public:
  // OK with the reply (value, number); kNotFound; kAborted, stale; kResourceExhausted, a limit of
  // the server or of max_open; kUnavailable.
  using Answer = std::function<void(absl::StatusOr<StoreReply>)>;
  using Ticket = std::uint64_t;  // 0: none, answered already

  static constexpr std::size_t kMaxOpen = 65536;

  // `now`: a monotonic clock.
  explicit StoreBroker(std::function<Instant()> now) : now_(std::move(now)) {}
  ~StoreBroker();  // what is open is answered kUnavailable
  StoreBroker(const StoreBroker&) = delete;
  StoreBroker& operator=(const StoreBroker&) = delete;

  // `request.id` is chosen here.
  Ticket ask(StoreRequest request, Answer answer);
  // Nobody waits for this answer any more; the server is told where it waits for the key.
  void withdraw(Ticket ticket);

  void link_up(ServerLink* link);
  void link_down();
  void store_said(const StoreReply& reply);

  void generation_started(Generation generation);
  void generation_ended();

  std::size_t open() const { return open_.size(); }

 private:
  struct Request {
    StoreRequest request;
    Answer answer;
    Instant deadline;       // kGet
    bool sent = false;      // at least once
    bool repeated = false;  // more than once
  };

  void send(Request& request);
  void answer(Ticket ticket, absl::StatusOr<StoreReply> reply);
  void answer_all(const absl::Status& status);

  std::function<Instant()> now_;
  ServerLink* link_ = nullptr;
  Generation generation_ = kNoGeneration;
  Ticket last_ticket_ = 0;
  std::map<Ticket, Request> open_;
};

}  // namespace muster::agent
