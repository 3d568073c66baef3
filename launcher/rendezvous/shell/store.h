// SPDX-License-Identifier: Apache-2.0
//
// The workers' key-value store: one key space per (job, generation), with those who wait for a
// key. When a generation ends its space is dropped and everyone who waits is answered kStale, as
// is everyone who asks later; so an old worker can neither read nor disturb a new generation.
//
// Every request is answered exactly once, in the list returned by ask(), expire() or close(),
// unless it is cancelled or its session is forgotten first. Everything is bounded by Limits.
//
// Pure: time comes in; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/store.h"
#include "proto/base/time.h"

namespace muster::rendezvous {

class Store {
 public:
  // What is beyond is refused in words that name the limit.
  struct Limits {
    // Of one key space.
    std::size_t keys = 262144;
    std::size_t bytes = 256U << 20U;  // keys and values together
    std::size_t waiters = 262144;
    // Of all together.
    std::size_t all_keys = 1U << 20U;
    std::size_t all_bytes = 1U << 30U;
    std::size_t all_waiters = 1U << 20U;
  };
  using Value = std::shared_ptr<const std::string>;
  // The value is shared by all who get it.
  struct Answer {
    SessionId session = 0;
    StoreReply reply;  // but for its value
    Value value;       // nullptr: none
    StoreReply whole() const;
  };
  using Answers = std::vector<Answer>;

  Store() = default;
  explicit Store(Limits limits) : limits_(limits) {}

  // The key space begins, empty; nothing happens if it is open already.
  void open(const JobId& job, Generation generation);
  // It ends: its waiters are answered kStale.
  [[nodiscard]] Answers close(const JobId& job, Generation generation);

  // What a request did to its key space.
  struct Change {
    std::string key;
    std::optional<std::string> value;  // absent: deleted
  };

  // One request of an agent of `job`: its answer and those of the waiters it satisfies. A get for
  // a missing key with `wait` > 0 is answered later.
  // `change` is set if the key space is another afterwards.
  [[nodiscard]] Answers ask(SessionId session, const JobId& job, const StoreRequest& request,
                            Instant now, std::optional<Change>* change = nullptr);

  // A key that a server before this one took; nothing happens if its space is not open. False then.
  bool restore(const JobId& job, Generation generation, const std::string& key,
               const std::string& value);

  // The session is gone: nobody waits for its answers.
  void forget(SessionId session);

  // Answers kNotFound to those whose time is up.
  [[nodiscard]] Answers expire(Instant now);
  [[nodiscard]] std::optional<Instant> next_deadline() const;

  std::size_t waiters() const { return waiters_.size(); }

 private:
  using SpaceId = std::pair<JobId, Generation>;
  using WaiterId = std::uint64_t;
  struct Space {
    std::map<std::string, Value> values;
    std::map<std::string, std::set<WaiterId>> waiting;  // by key
    std::size_t bytes = 0;
    std::size_t waiter_count = 0;
  };
  struct Waiter {
    SpaceId space;
    std::string key;
    SessionId session = 0;
    std::uint64_t request = 0;
    Instant deadline;
  };

  // nullopt: it is answered later.
  std::optional<Answer> get(const SpaceId& id, SessionId session, const StoreRequest& request,
                            Instant now);
  StoreReply put(Space& space, const std::string& key, std::string value);
  StoreReply add(Space& space, const std::string& key, std::int64_t delta);
  void wake(Space& space, const std::string& key, Answers& answers);
  // What is said against it; empty: it waits.
  std::string wait(const SpaceId& id, SessionId session, const StoreRequest& request, Instant now);
  bool remove(Space& space, const std::string& key);
  void cancel(SessionId session, std::uint64_t request);
  void drop(WaiterId id);

  Limits limits_;
  std::size_t all_keys_ = 0;
  std::size_t all_bytes_ = 0;
  std::map<SpaceId, Space> spaces_;
  std::map<WaiterId, Waiter> waiters_;
  std::map<SessionId, std::set<std::pair<std::uint64_t, WaiterId>>> by_session_;  // by request id
  std::set<std::pair<Instant, WaiterId>> by_deadline_;
  WaiterId last_waiter_ = 0;
};

}  // namespace muster::rendezvous
