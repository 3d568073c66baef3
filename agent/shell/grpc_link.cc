// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/grpc_link.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/agent_stream.h"
#include "proto/base/check.h"
#include "proto/transport/dialer.h"
#include "proto/transport/grpc_channel.h"

namespace muster::agent {
namespace {

// How long the end of the process may wait for last words (a Leave) to reach the server.
constexpr Duration kLastWords = 500ms;
constexpr Duration kCancelled = 5s;  // far more than a cancelled call takes

}  // namespace

struct GrpcLink::State : std::enable_shared_from_this<GrpcLink::State> {
  State(boost::asio::io_context& io_context, GrpcLinkOptions link_options)
      : io(io_context), options(std::move(link_options)), patience(io) {}

  void open() {
    opening_since = std::chrono::steady_clock::now();
    dialer = transport::Dialer::start(io, {options.host, options.port, ""}, options.credentials.tls,
                                      options.connect_timeout,
                                      [weak = weak_from_this()](transport::Dialed dialed) {
                                        if (const auto self = weak.lock())
                                          self->dialed(std::move(dialed));
                                      });
  }

  void dialed(transport::Dialed dialed) {
    dialer.reset();
    using Kind = transport::Dialed::Kind;
    if (dialed.kind != Kind::kConnected) {
      return down(dialed.text, dialed.kind != Kind::kStranger);
    }
    addr = dialed.addr;
    AgentStream::Callbacks stream_callbacks;
    const std::weak_ptr<State> weak = weak_from_this();
    stream_callbacks.opened = [weak](const std::string& instance) {
      if (const auto self = weak.lock()) self->opened(instance);
    };
    stream_callbacks.heard = [weak](wire::FromServer heard) {
      if (const auto self = weak.lock()) self->heard(std::move(heard));
    };
    stream_callbacks.ended = [weak](const grpc::Status& status) {
      if (const auto self = weak.lock()) self->ended(status);
    };
    stream = AgentStream::start(io, std::move(dialed.file), options.credentials.token,
                                options.max_queued_bytes, std::move(stream_callbacks));
    patience.expires_at(opening_since + options.connect_timeout);
    patience.async_wait([weak, waiting = stream.get()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      // Another stream may be opening by the time this runs.
      if (self && !error && !self->is_up && self->stream.get() == waiting) {
        self->give_up(self->where() + ": no answer to Attach in time", true);
      }
    });
  }

  void opened(const std::string& instance) {
    // A failed call brings its metadata with its status; the status says why.
    if (instance.empty()) return;
    patience.cancel();
    is_up = true;
    const auto up = callbacks.up;
    up();
  }

  void heard(wire::FromServer heard) {
    if (!is_up) return give_up(where() + ": is a gRPC server, but not Muster", false);
    if (auto* message = std::get_if<ServerMessage>(&heard)) {
      const auto said = callbacks.said;
      said(std::move(*message));
    } else {
      const auto store_said = callbacks.store_said;
      if (store_said) store_said(std::get<StoreReply>(std::move(heard)));
    }
  }

  void ended(const grpc::Status& status) {
    const bool is_stranger =
        status.error_code() == grpc::StatusCode::UNIMPLEMENTED || (status.ok() && !is_up);
    down(where() + ": " + transport::to_text(status), !is_stranger);
  }

  void give_up(const std::string& reason, bool speaks_muster) {
    stream->silence();
    stream->cancel();
    retire();
    down(reason, speaks_muster);
  }

  // Streams that still have to end are kept: the link's end waits for them.
  void retire() {
    std::vector<std::shared_ptr<AgentStream>> still_ending;
    for (auto& old : retired) {
      if (!old->wait_until_done(0ns)) still_ending.push_back(std::move(old));
    }
    retired = std::move(still_ending);
    if (stream) retired.push_back(std::move(stream));
    stream.reset();
  }

  void down(const std::string& reason, bool speaks_muster) {
    patience.cancel();
    retire();
    is_open = false;
    is_up = false;
    const auto report = std::move(callbacks.down);
    callbacks = {};
    report(reason, speaks_muster);
  }

  std::string where() const {
    const std::string text = transport::to_text({options.host, options.port, ""});
    return addr.empty() || addr == options.host ? text : text + " (" + addr + ")";
  }

  void close() {
    patience.cancel();
    dialer.reset();
    callbacks = {};
    is_open = false;
    is_up = false;
    if (!stream) return;
    stream->close();
    retire();
  }

  boost::asio::io_context& io;
  GrpcLinkOptions options;
  Callbacks callbacks;
  std::unique_ptr<transport::Dialer> dialer;
  std::shared_ptr<AgentStream> stream;
  std::vector<std::shared_ptr<AgentStream>> retired;
  boost::asio::steady_timer patience;
  std::chrono::steady_clock::time_point opening_since;
  std::string addr;
  bool is_open = false;  // or opening
  bool is_up = false;
};

GrpcLink::GrpcLink(boost::asio::io_context& io, GrpcLinkOptions options)
    : state_(std::make_shared<State>(io, std::move(options))) {}

GrpcLink::~GrpcLink() {
  state_->dialer.reset();
  state_->patience.cancel();
  if (state_->stream) {
    state_->stream->silence();
    state_->stream->cancel();
    state_->retire();
  }
  for (const auto& stream : state_->retired) {
    if (stream->wait_until_done(kLastWords)) continue;
    stream->cancel();
    MUSTER_CHECK(stream->wait_until_done(kCancelled));
  }
}

void GrpcLink::open(Callbacks callbacks) {
  MUSTER_CHECK(!state_->is_open);
  state_->is_open = true;
  state_->callbacks = std::move(callbacks);
  state_->open();
}

void GrpcLink::send(AgentMessage message) {
  MUSTER_CHECK(state_->is_up);
  state_->stream->send(wire::to_wire(message));
}

// Without a stream the request is lost with it: whoever keeps the books sends it again.
void GrpcLink::store(StoreRequest request) {
  if (state_->is_up) state_->stream->send(wire::to_wire(request));
}

void GrpcLink::close() {
  state_->close();
}

std::string GrpcLink::dialed_addr() const {
  return state_->addr;
}

}  // namespace muster::agent
