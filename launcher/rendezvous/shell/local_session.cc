// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/local_session.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace muster::rendezvous {
namespace {

// Both ends of an in-process session: what the server says is posted to the io loop.
class LocalPipe : public SessionSink, public std::enable_shared_from_this<LocalPipe> {
 public:
  LocalPipe(boost::asio::io_context& io, LocalSession::Callbacks callbacks)
      : io_(io), callbacks_(std::move(callbacks)) {}

  void say(const ServerMessage& message) override {
    boost::asio::post(io_, [self = shared_from_this(), message] {
      if (self->open_ && self->callbacks_.said) self->callbacks_.said(message);
    });
  }
  void say(const StoreReply& reply) override {
    boost::asio::post(io_, [self = shared_from_this(), reply] {
      if (self->open_ && self->callbacks_.store_said) self->callbacks_.store_said(reply);
    });
  }
  void finish(const std::string& reason) override {
    boost::asio::post(io_, [self = shared_from_this(), reason] {
      if (!self->open_) return;
      self->open_ = false;
      if (self->callbacks_.closed) self->callbacks_.closed(reason);
    });
  }

  bool open() const { return open_; }
  void shut() { open_ = false; }

 private:
  boost::asio::io_context& io_;
  LocalSession::Callbacks callbacks_;
  bool open_ = true;
};

class LocalSessionImpl : public LocalSession {
 public:
  // `core` outlives every call it gets, or is expired.
  LocalSessionImpl(std::weak_ptr<ServerCore*> core, std::shared_ptr<LocalPipe> pipe, SessionId id)
      : core_(std::move(core)), pipe_(std::move(pipe)), id_(id) {}
  ~LocalSessionImpl() override { close(); }
  LocalSessionImpl(const LocalSessionImpl&) = delete;
  LocalSessionImpl& operator=(const LocalSessionImpl&) = delete;

  void send(AgentMessage message) override {
    const auto core = core_.lock();
    if (core && pipe_->open()) (*core)->agent_said(id_, std::move(message));
  }
  void store(StoreRequest request) override {
    const auto core = core_.lock();
    if (core && pipe_->open()) (*core)->store_asked(id_, std::move(request));
  }
  void close() override {
    if (!pipe_->open()) return;
    pipe_->shut();
    if (const auto core = core_.lock()) (*core)->detach(id_);
  }

 private:
  std::weak_ptr<ServerCore*> core_;
  std::shared_ptr<LocalPipe> pipe_;
  SessionId id_;
};

}  // namespace

std::unique_ptr<LocalSession> open_local_session(boost::asio::io_context& io,
                                                 const std::shared_ptr<ServerCore*>& core,
                                                 LocalSession::Callbacks callbacks) {
  auto pipe = std::make_shared<LocalPipe>(io, std::move(callbacks));
  const SessionId id = (*core)->attach(pipe, "");
  return std::make_unique<LocalSessionImpl>(core, std::move(pipe), id);
}

}  // namespace muster::rendezvous
