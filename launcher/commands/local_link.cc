// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/local_link.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "proto/base/check.h"

namespace muster::launcher {

// Callbacks of a session that was closed meanwhile may still be queued on the loop: each carries
// the number of its session and is dropped when that is over. Nothing that may be running is
// destroyed from within: callbacks are kept by the closures, sessions end on the next turn.
struct LocalLink::State {
  State(boost::asio::io_context& loop, rendezvous::RendezvousServer& host)
      : io(loop), server(host) {}

  void end_session() {
    ++number;
    up = false;
    if (session == nullptr) return;
    std::shared_ptr<rendezvous::LocalSession> ended = std::move(session);
    boost::asio::post(io, [ended] {});
  }

  boost::asio::io_context& io;
  rendezvous::RendezvousServer& server;
  std::unique_ptr<rendezvous::LocalSession> session;
  std::uint64_t number = 0;
  bool up = false;
};

LocalLink::LocalLink(boost::asio::io_context& io, rendezvous::RendezvousServer& server)
    : state_(std::make_shared<State>(io, server)) {}

LocalLink::~LocalLink() {
  state_->end_session();
}

void LocalLink::open(Callbacks callbacks) {
  MUSTER_CHECK(state_->session == nullptr);
  const auto kept = std::make_shared<const Callbacks>(std::move(callbacks));
  const std::weak_ptr<State> weak = state_;
  const std::uint64_t number = ++state_->number;
  const auto current = [weak, number]() -> std::shared_ptr<State> {
    std::shared_ptr<State> state = weak.lock();
    return state != nullptr && state->number == number ? state : nullptr;
  };
  boost::asio::post(state_->io, [current, kept] {
    const auto state = current();
    if (state == nullptr) return;
    state->up = true;
    kept->up();
  });
  state_->session = state_->server.attach_local(
      {.said =
           [current, kept](ServerMessage message) {
             if (current() != nullptr) kept->said(std::move(message));
           },
       .store_said =
           [current, kept](StoreReply reply) {
             if (current() != nullptr) kept->store_said(std::move(reply));
           },
       .closed =
           [current, kept](std::string reason) {
             const auto state = current();
             if (state == nullptr) return;
             state->end_session();  // before the callback: it may open the next one
             kept->down(std::move(reason), true);
           }});
}

void LocalLink::send(AgentMessage message) {
  MUSTER_CHECK(state_->up);
  state_->session->send(std::move(message));
}

void LocalLink::store(StoreRequest request) {
  MUSTER_CHECK(state_->up);
  state_->session->store(std::move(request));
}

void LocalLink::close() {
  if (state_->session != nullptr) state_->session->close();
  state_->end_session();
}

}  // namespace muster::launcher
