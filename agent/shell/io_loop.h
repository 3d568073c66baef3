// SPDX-License-Identifier: Apache-2.0
//
// The agent's io loop: one Asio context, run by one thread that lives as long as the process.
// Everything in agent/shell happens on it, so that nothing there needs a lock; and workers are
// spawned from it, because a parent-death signal follows the *thread* that forked.
//
// Thread rule: run() is called once, from the thread that never ends (main). post() and stop()
// may be called from any thread; all else on the io thread only.
#pragma once

#include <chrono>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "proto/base/time.h"

namespace muster::agent {

class IoLoop {
 public:
  IoLoop() : context_(1) {}
  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;

  boost::asio::io_context& context() { return context_; }

  // Runs handlers until stop(), or until nothing is left to wait for.
  void run() { context_.run(); }
  void stop() { context_.stop(); }

  template <typename Function>
  void post(Function&& function) {
    boost::asio::post(context_, std::forward<Function>(function));
  }

  // The monotonic clock of this process.
  static Instant now() {
    return Instant{
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
  }

 private:
  boost::asio::io_context context_;
};

}  // namespace muster::agent
