// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent_shell/rendezvous_link.h"

#include <utility>
#include <variant>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/io_loop.h"
#include "proto/base/check.h"

namespace muster::testing {

namespace {

using agent::ServerLink;
using boost::asio::steady_timer;

rendezvous::Options server_options() {
  rendezvous::Options options;
  options.server_instance = "local";
  options.holder = "the test";
  options.unix_us_at_origin = 1'769'860'800'000'000;
  return options;
}

}  // namespace

struct LocalServer::State : std::enable_shared_from_this<LocalServer::State> {
  explicit State(boost::asio::io_context& context)
      : io(context), machine(server_options(), Rng(1)), timer(context) {}

  void feed(const rendezvous::Event& event) {
    const auto actions = machine.step(event, agent::IoLoop::now());
    for (const rendezvous::Action& action : actions)
      std::visit(*this, action);
    arm();
  }

  void arm() {
    const auto next = machine.next_deadline();
    if (!next) return;
    timer.expires_at(steady_timer::time_point(
        std::chrono::duration_cast<steady_timer::duration>(next->since_origin)));
    timer.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->feed(rendezvous::Tick{});
    });
  }

  // Callbacks leave through the queue, never from inside a call of the link.
  void later(SessionId session, std::function<void(ServerLink::Callbacks&)> call) {
    boost::asio::post(io, [weak = weak_from_this(), session, call = std::move(call)] {
      const auto self = weak.lock();
      if (!self) return;
      const auto found = self->sessions.find(session);
      if (found == self->sessions.end()) return;
      ServerLink::Callbacks callbacks = found->second;
      call(callbacks);
    });
  }

  void break_session(SessionId session, const std::string& reason) {
    const auto found = sessions.find(session);
    if (found == sessions.end()) return;
    const auto down = found->second.down;
    sessions.erase(found);
    boost::asio::post(io, [down, reason] { down(reason, true); });
  }

  void operator()(const rendezvous::Send& order) {
    later(order.session,
          [message = order.message](ServerLink::Callbacks& to) { to.said(message); });
  }
  void operator()(const rendezvous::CloseSession& order) {
    boost::asio::post(io, [weak = weak_from_this(), session = order.session] {
      const auto self = weak.lock();
      if (self) self->break_session(session, "closed by the server");
    });
  }
  void operator()(const rendezvous::Persist&) {}
  void operator()(const rendezvous::Forget&) {}
  void operator()(const rendezvous::Emit& order) {
    events.push_back(order.event);
    if (heard) heard(order.event);
  }
  void operator()(const rendezvous::OpenStore&) {}
  void operator()(const rendezvous::CloseStore&) {}
  void operator()(const rendezvous::ReplyOperator&) {}
  void operator()(const rendezvous::JobOver& order) { outcome = order.outcome; }

  boost::asio::io_context& io;
  rendezvous::Rendezvous machine;
  steady_timer timer;
  std::map<SessionId, ServerLink::Callbacks> sessions;
  SessionId last_session = 0;
  bool refusing = false;
  std::vector<JobEvent> events;
  std::optional<Outcome> outcome;
  std::function<void(const JobEvent&)> heard;
};

namespace {

// One agent's end. The server's state is reached weakly: a dead server says nothing.
template <typename State>
class Link : public ServerLink {
 public:
  Link(boost::asio::io_context& io, std::weak_ptr<State> server)
      : io_(io), server_(std::move(server)) {}
  ~Link() override { Link::close(); }

  void open(Callbacks callbacks) override {
    const auto server = server_.lock();
    if (!server || server->refusing) {
      boost::asio::post(io_, [down = callbacks.down] { down("connection refused", true); });
      return;
    }
    session_ = ++server->last_session;
    server->sessions[session_] = std::move(callbacks);
    server->later(session_, [](Callbacks& to) { to.up(); });
  }

  void send(AgentMessage message) override {
    boost::asio::post(io_, [weak = server_, session = session_, message = std::move(message)] {
      const auto server = weak.lock();
      if (server) server->feed(rendezvous::AgentSaid{session, "", message});
    });
  }

  void store(StoreRequest /*request*/) override { MUSTER_CHECK(false); }

  void close() override {
    if (session_ == 0) return;
    if (const auto server = server_.lock()) server->sessions.erase(session_);
    boost::asio::post(io_, [weak = server_, session = session_] {
      const auto server = weak.lock();
      if (server) server->feed(rendezvous::StreamLost{session});
    });
    session_ = 0;
  }

 private:
  boost::asio::io_context& io_;
  std::weak_ptr<State> server_;
  SessionId session_ = 0;
};

}  // namespace

LocalServer::LocalServer(boost::asio::io_context& io) : state_(std::make_shared<State>(io)) {}
LocalServer::~LocalServer() = default;

std::unique_ptr<agent::ServerLink> LocalServer::link() {
  return std::make_unique<Link<State>>(state_->io, state_);
}

void LocalServer::cut() {
  const auto sessions = state_->sessions;
  for (const auto& [session, callbacks] : sessions) {
    state_->break_session(session, "cut");
    state_->feed(rendezvous::StreamLost{session});
  }
}

void LocalServer::refuse(bool refused) {
  state_->refusing = refused;
}

const std::vector<JobEvent>& LocalServer::events() const {
  return state_->events;
}
const std::optional<Outcome>& LocalServer::outcome() const {
  return state_->outcome;
}
void LocalServer::on_event(std::function<void(const JobEvent&)> heard) {
  state_->heard = std::move(heard);
}

}  // namespace muster::testing
