// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/store_proxy.h"

#include <chrono>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/shell/store_broker.h"
#include "muster/v1/store.grpc.pb.h"
#include "proto/transport/grpc_host.h"
#include "proto/transport/grpc_settings.h"
#include "proto/transport/listener.h"
#include "proto/transport/unary_call.h"
#include "proto/wire/border.h"

namespace muster::agent {
namespace {

using transport::UnaryCall;

Instant monotonic_now() {
  return {std::chrono::steady_clock::now().time_since_epoch()};
}

grpc::Status to_grpc(const absl::Status& status) {
  // absl's codes are gRPC's.
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

grpc::Status malformed(const wire::Border& border) {
  return {grpc::StatusCode::INVALID_ARGUMENT, std::string(border.status().message())};
}

}  // namespace

struct StoreProxy::State : std::enable_shared_from_this<StoreProxy::State> {
  class Service;

  State(boost::asio::io_context& io_context, JobId of_job, std::string secret);

  boost::asio::io_context& io;
  const JobId job;
  const std::string token;
  StoreBroker broker{monotonic_now};
  std::unique_ptr<Service> service;
  std::unique_ptr<transport::GrpcHost> host;
  std::unique_ptr<transport::Listener> listener;
};

// On gRPC's threads: checks token and sizes, then posts to the broker.
class StoreProxy::State::Service final : public v1::Store::CallbackService {
 public:
  explicit Service(State& state) : state_(state) {}

  grpc::ServerUnaryReactor* Set(grpc::CallbackServerContext* context, const v1::SetRequest* from,
                                v1::SetReply* reply) override {
    wire::Border border;
    StoreRequest request = begin(*from, StoreRequest::Op::kSet, border);
    request.value = border.text("value", from->value(), kMaxStoreValueBytes);
    return pass_on(*context, from->scope(), std::move(request), border, reply,
                   [](const StoreReply&) { return v1::SetReply(); });
  }

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetRequest* from,
                                v1::GetReply* reply) override {
    wire::Border border;
    StoreRequest request = begin(*from, StoreRequest::Op::kGet, border);
    request.wait = border.duration("wait_ns", from->wait_ns());
    return pass_on(*context, from->scope(), std::move(request), border, reply,
                   [](const StoreReply& got) {
                     v1::GetReply out;
                     out.set_value(got.value);
                     return out;
                   });
  }

  grpc::ServerUnaryReactor* Add(grpc::CallbackServerContext* context, const v1::AddRequest* from,
                                v1::AddReply* reply) override {
    wire::Border border;
    StoreRequest request = begin(*from, StoreRequest::Op::kAdd, border);
    request.delta = from->delta();
    return pass_on(*context, from->scope(), std::move(request), border, reply,
                   [](const StoreReply& got) {
                     v1::AddReply out;
                     out.set_sum(got.number);
                     return out;
                   });
  }

  grpc::ServerUnaryReactor* Delete(grpc::CallbackServerContext* context,
                                   const v1::DeleteRequest* from, v1::DeleteReply* reply) override {
    wire::Border border;
    StoreRequest request = begin(*from, StoreRequest::Op::kDelete, border);
    return pass_on(*context, from->scope(), std::move(request), border, reply,
                   [](const StoreReply&) { return v1::DeleteReply(); });
  }

 private:
  template <class From>
  static StoreRequest begin(const From& from, StoreRequest::Op op, wire::Border& border) {
    StoreRequest request;
    request.op = op;
    request.generation = border.generation("scope.generation", from.scope().generation());
    request.key = border.text("key", from.key(), kMaxStoreKeyBytes);
    if (request.key.empty()) border.complain("key", "missing");
    return request;
  }

  grpc::Status admit(const grpc::CallbackServerContext& context, const v1::Scope& scope,
                     const wire::Border& border) const {
    const auto& metadata = context.client_metadata();
    const auto given = metadata.find(transport::kTokenKey);
    if (given == metadata.end() || !transport::token_matches(given->second, state_.token)) {
      return {grpc::StatusCode::UNAUTHENTICATED,
              "wrong or missing token (MUSTER_STORE_TOKEN_FILE)"};
    }
    if (!border.ok()) return malformed(border);
    if (scope.job() != state_.job) {
      return {grpc::StatusCode::ABORTED, "stale: this agent serves another job"};
    }
    return grpc::Status::OK;
  }

  template <class Reply, class Convert>
  grpc::ServerUnaryReactor* pass_on(const grpc::CallbackServerContext& context,
                                    const v1::Scope& scope, StoreRequest request,
                                    const wire::Border& border, Reply* reply, Convert convert) {
    // The ticket is the io thread's; `ended` posts, so it sees it set.
    const auto ticket = std::make_shared<StoreBroker::Ticket>(0);
    const std::weak_ptr<State> weak = state_.weak_from_this();
    const auto call = UnaryCall<Reply>::start(reply, [weak, ticket, &loop = state_.io] {
      boost::asio::post(loop, [weak, ticket] {
        const auto state = weak.lock();
        if (state && *ticket != 0) state->broker.withdraw(*ticket);
      });
    });
    if (const grpc::Status status = admit(context, scope, border); !status.ok()) {
      call->finish(status);
      return call.get();
    }
    boost::asio::post(state_.io,
                      [weak, ticket, call, convert, request = std::move(request)]() mutable {
                        const auto state = weak.lock();
                        if (!state || call->over()) return;
                        *ticket = state->broker.ask(
                            std::move(request), [call, convert](absl::StatusOr<StoreReply> answer) {
                              if (!answer.ok()) return call->finish(to_grpc(answer.status()));
                              call->finish(grpc::Status::OK, convert(*answer));
                            });
                      });
    return call.get();
  }

  State& state_;
};

StoreProxy::State::State(boost::asio::io_context& io_context, JobId of_job, std::string secret)
    : io(io_context),
      job(std::move(of_job)),
      token(std::move(secret)),
      service(std::make_unique<Service>(*this)),
      host(std::make_unique<transport::GrpcHost>(std::vector<grpc::Service*>{service.get()})) {}

StoreProxy::StoreProxy(boost::asio::io_context& io, JobId job, std::string token)
    : state_(std::make_shared<State>(io, std::move(job), std::move(token))) {}

StoreProxy::~StoreProxy() {
  state_->listener.reset();
  state_->broker.link_down();
  state_->broker.generation_ended();
  state_->host->shut_down();
}

absl::StatusOr<std::string> StoreProxy::listen() {
  auto listener = transport::Listener::tcp(
      state_->io, "127.0.0.1", 0,
      [host = state_->host.get()](int fd, std::string peer) { host->add(fd, std::move(peer)); });
  if (!listener.ok()) return listener.status();
  state_->listener = *std::move(listener);
  return "127.0.0.1:" + std::to_string(state_->listener->port());
}

void StoreProxy::link_up(ServerLink* link) {
  state_->broker.link_up(link);
}
void StoreProxy::link_down() {
  state_->broker.link_down();
}
void StoreProxy::store_said(const StoreReply& reply) {
  state_->broker.store_said(reply);
}
void StoreProxy::generation_started(Generation generation) {
  state_->broker.generation_started(generation);
}
void StoreProxy::generation_ended() {
  state_->broker.generation_ended();
}

}  // namespace muster::agent
