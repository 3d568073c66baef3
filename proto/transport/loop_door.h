// SPDX-License-Identifier: Apache-2.0
//
// How a thread that nothing can interrupt finds an io loop, if it is still there.
//
// Thread rule: post() on any thread; close() on the loop's, before the loop goes.
#pragma once

#include <mutex>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace muster::transport {

class LoopDoor {
 public:
  explicit LoopDoor(boost::asio::io_context& io) : io_(&io) {}
  LoopDoor(const LoopDoor&) = delete;
  LoopDoor& operator=(const LoopDoor&) = delete;

  // `handler` runs on the loop, or is destroyed here if the door is closed.
  template <class Handler>
  void post(Handler handler) {
    const std::lock_guard lock(mutex_);
    if (io_ != nullptr) boost::asio::post(*io_, std::move(handler));
  }

  void close() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* io_;
};

}  // namespace muster::transport
