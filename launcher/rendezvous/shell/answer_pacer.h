// SPDX-License-Identifier: Apache-2.0
//
// Ten thousand ranks that wait for one large value must not cost ten thousand copies of it at
// once. `Outgoing` counts what waits for slow readers on all streams of a server; `AnswerPacer`
// holds large answers back, sharing their value, while that is too much. Small answers, and those
// of a session that has many held back already, are said at once: the bounds of its own stream
// are for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "launcher/rendezvous/shell/store.h"
#include "proto/base/ids.h"
#include "proto/base/store.h"

namespace muster::rendezvous {

// Thread rule: any thread.
class Outgoing {
 public:
  // `drained` is called, by whoever subtracts, once for every wait_for_room() that returned true.
  Outgoing(std::size_t most, std::function<void()> drained)
      : most_(most), drained_(std::move(drained)) {}

  void add(std::size_t bytes) { bytes_ += bytes; }
  void subtract(std::size_t bytes) {
    if (bytes_.fetch_sub(bytes) - bytes < most_ && waited_for_.exchange(false)) drained_();
  }
  std::size_t bytes() const { return bytes_; }

  // False: there is room now.
  bool wait_for_room() {
    if (bytes_ < most_) return false;
    waited_for_ = true;
    return bytes_ >= most_ || !waited_for_.exchange(false);
  }

 private:
  const std::size_t most_;
  const std::function<void()> drained_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> waited_for_{false};
};

// Thread rule: io thread.
class AnswerPacer {
 public:
  static constexpr std::size_t kLarge = 4096;        // a value of fewer bytes never waits
  static constexpr std::size_t kHeldOfSession = 16;  // more are not held back

  // `say`: to a session that may be gone.
  using Say = std::function<void(SessionId, const StoreReply&)>;
  AnswerPacer(std::shared_ptr<Outgoing> outgoing, Say say)
      : outgoing_(std::move(outgoing)), say_(std::move(say)) {}

  void take(Store::Answers answers);
  // There may be room again.
  void go_on();
  std::size_t held() const { return held_.size(); }

 private:
  std::shared_ptr<Outgoing> outgoing_;
  Say say_;
  std::deque<Store::Answer> held_;
  std::map<SessionId, std::size_t> held_of_;
};

}  // namespace muster::rendezvous
