// SPDX-License-Identifier: Apache-2.0
//
// Keeps ends of workers back until their order is known (agent/core/end_order.h), with a timer for
// those that do not come.
//
// Thread rule: io thread only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/end_order.h"

namespace muster::agent {

class EndBatch {
 public:
  using Others = std::function<std::vector<StillAlive>()>;

  explicit EndBatch(boost::asio::io_context& io);
  ~EndBatch();
  EndBatch(const EndBatch&) = delete;
  EndBatch& operator=(const EndBatch&) = delete;

  void set_peers_elsewhere(bool peers);
  // Somebody asks the workers for their end: what is waited for on other nodes has come. What that
  // leaves to be told is told from the loop.
  void heard_from_elsewhere();
  // `gathers`: a failure that nobody asked for; others may have been first, and `others` is asked
  // who lives, at most once and only in here. `tell` is called once, later or in here, in its turn.
  void add(const SeenEnd& end, bool gathers, const Others& others, std::function<void()> tell);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
