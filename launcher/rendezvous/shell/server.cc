// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/server.h"

#include <chrono>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/rendezvous/shell/grpc_door.h"
#include "proto/transport/address.h"
#include "proto/transport/listener.h"
#include "proto/transport/loop_door.h"
#include "proto/transport/tls.h"

namespace muster::rendezvous {
namespace {

constexpr auto kFarewell = std::chrono::milliseconds(500);
constexpr Duration kHandshake = 10s;
constexpr Duration kComplaintsApart = 10s;  // of TLS; what comes in between is counted

}  // namespace

struct RendezvousServer::State : std::enable_shared_from_this<State> {
  State(boost::asio::io_context& io_context, ServerOptions options)
      : io(io_context), core(io, std::move(options)), farewell(io) {}

  GrpcDoor* add_door(DoorKind kind) {
    doors.push_back(std::make_unique<GrpcDoor>(io, core, kind, [this] { check_farewell(); }));
    return doors.back().get();
  }

  // Plain connections go straight to the door, others by way of TLS.
  void connected(GrpcDoor& door, int fd, std::string peer) {
    const auto& tls = core.options().credentials.tls;
    if (!tls) return door.connected(fd, std::move(peer));
    tls->accept(loop, transport::File(fd), kHandshake,
                [weak = weak_from_this(), &door, peer](transport::TlsResult result) {
                  const auto state = weak.lock();
                  if (!state) return;
                  if (result.kind != transport::TlsResult::Kind::kConnected) {
                    return state->refused(peer, result.text);
                  }
                  door.connected(result.file.release(), peer);
                });
  }

  // Anybody who reaches the port can cause these.
  void refused(const std::string& peer, const std::string& why) {
    const auto now = std::chrono::steady_clock::now();
    if (complained && now - *complained < kComplaintsApart) {
      ++uncounted;
      return;
    }
    complained = now;
    const std::string more =
        uncounted == 0 ? "" : "; " + std::to_string(uncounted) + " more since the last such line";
    uncounted = 0;
    if (core.options().say)
      core.options().say("refused a connection from " + peer + ": " + why + more);
  }

  void check_farewell() {
    if (!gone) return;
    for (const auto& door : doors) {
      if (door->open_calls() != 0) return;
    }
    farewell.cancel();
    boost::asio::post(io, std::exchange(gone, nullptr));
  }

  boost::asio::io_context& io;
  ServerCore core;
  const std::shared_ptr<transport::LoopDoor> loop = std::make_shared<transport::LoopDoor>(io);
  std::optional<std::chrono::steady_clock::time_point> complained;
  std::size_t uncounted = 0;
  boost::asio::steady_timer farewell;
  std::function<void()> gone;  // while stopping
  std::vector<std::unique_ptr<GrpcDoor>> doors;
  std::vector<std::unique_ptr<transport::Listener>> listeners;  // last: close first
};

RendezvousServer::RendezvousServer(boost::asio::io_context& io, ServerOptions options)
    : state_(std::make_shared<State>(io, std::move(options))) {}

RendezvousServer::~RendezvousServer() {
  state_->loop->close();
}

absl::StatusOr<int> RendezvousServer::listen(const std::string& host, int port) {
  // The kind of door hangs on the address that was bound, so the door comes after the listener.
  const auto door = std::make_shared<GrpcDoor*>(nullptr);
  State* const state = state_.get();  // has the listener
  auto listener = transport::Listener::tcp(
      state_->io, host, port,
      [state, door](int fd, std::string peer) { state->connected(**door, fd, std::move(peer)); });
  if (!listener.ok()) return listener.status();
  *door = state_->add_door(transport::is_loopback((*listener)->address()) ? DoorKind::kLoopback
                                                                          : DoorKind::kNetwork);
  const int bound = (*listener)->port();
  state_->listeners.push_back(*std::move(listener));
  return bound;
}

absl::Status RendezvousServer::listen_unix(const std::string& path) {
  GrpcDoor* door = state_->add_door(DoorKind::kControlSocket);
  auto listener = transport::Listener::unix_socket(
      state_->io, path, [door](int fd, std::string peer) { door->connected(fd, std::move(peer)); });
  if (!listener.ok()) {
    state_->doors.pop_back();
    return listener.status();
  }
  state_->listeners.push_back(*std::move(listener));
  return absl::OkStatus();
}

std::unique_ptr<LocalSession> RendezvousServer::attach_local(LocalSession::Callbacks callbacks) {
  return state_->core.attach_local(std::move(callbacks));
}

void RendezvousServer::operate(JobId job, std::string by, Order order,
                               ServerCore::Answered answered) {
  state_->core.operate(std::move(job), std::move(by), std::move(order), std::move(answered));
}

std::vector<JobView> RendezvousServer::view() const {
  return state_->core.view();
}

void RendezvousServer::stop(std::string reason, std::function<void()> done) {
  state_->listeners.clear();
  state_->core.stop(std::move(reason));
  say_farewell(std::move(done));
}

void RendezvousServer::close(std::string reason, std::function<void()> done) {
  state_->listeners.clear();
  state_->core.close(std::move(reason));
  say_farewell(std::move(done));
}

void RendezvousServer::say_farewell(std::function<void()> done) {
  state_->gone = std::move(done);
  state_->farewell.expires_after(kFarewell);
  state_->farewell.async_wait(
      [weak = state_->weak_from_this()](const boost::system::error_code& error) {
        const auto state = weak.lock();
        if (state && !error && state->gone) {
          boost::asio::post(state->io, std::exchange(state->gone, nullptr));
        }
      });
  state_->check_farewell();
}

}  // namespace muster::rendezvous
