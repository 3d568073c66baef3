// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/end_batch.h"

#include <map>
#include <utility>

#include <boost/asio/steady_timer.hpp>

namespace muster::agent {

struct EndBatch::State : std::enable_shared_from_this<EndBatch::State> {
  explicit State(boost::asio::io_context& io) : timer(io) {}

  boost::asio::steady_timer timer;
  EndOrder order;
  std::map<std::int64_t, std::function<void()>> tells;

  void open(Duration patience) {
    timer.expires_after(patience);
    timer.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto state = weak.lock();
      if (!error && state && state->order.open()) state->close();
    });
  }

  void close() {
    timer.cancel();
    // What is told may lead to the next batch.
    std::map<std::int64_t, std::function<void()>> told = std::exchange(tells, {});
    for (const std::int64_t pid : order.close())
      told.at(pid)();
  }
};

EndBatch::EndBatch(boost::asio::io_context& io) : state_(std::make_shared<State>(io)) {}

EndBatch::~EndBatch() {
  state_->timer.cancel();
}

void EndBatch::set_peers_elsewhere(bool peers) {
  state_->order.set_peers_elsewhere(peers);
}

void EndBatch::heard_from_elsewhere() {
  if (state_->order.heard_from_elsewhere()) state_->open(0s);
}

void EndBatch::add(const SeenEnd& end, bool gathers, const Others& others,
                   std::function<void()> tell) {
  EndOrder& order = state_->order;
  if (gathers && end.evidence && order.asks_for_others(*end.evidence)) {
    const Duration patience = order.gather(end, others());
    if (patience > 0s) state_->open(patience);
  }
  if (!order.open()) return tell();
  state_->tells.emplace(end.pid, std::move(tell));
  if (order.add(end)) state_->close();
}

}  // namespace muster::agent
