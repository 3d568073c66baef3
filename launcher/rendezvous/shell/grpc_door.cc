// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/grpc_door.h"

#include <array>
#include <atomic>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "launcher/rendezvous/shell/attach_stream.h"
#include "launcher/rendezvous/shell/control_wire.h"
#include "launcher/rendezvous/shell/description.h"
#include "muster/v1/control.grpc.pb.h"
#include "muster/v1/rendezvous.grpc.pb.h"
#include "proto/transport/grpc_host.h"
#include "proto/transport/grpc_settings.h"
#include "proto/transport/unary_call.h"

namespace muster::rendezvous {
namespace {

// The rest of a reply fits in what this leaves.
constexpr std::size_t kMaxDescribedBytes = transport::kMaxGrpcMessageBytes - (64U << 10U);

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool has_token(const grpc::CallbackServerContext& context, const std::string& token) {
  if (token.empty()) return false;
  const auto& metadata = context.client_metadata();
  const auto given = metadata.find(transport::kTokenKey);
  return given != metadata.end() && transport::token_matches(given->second, token);
}

grpc::Status status_of(const OrderAnswer& answer) {
  switch (answer.kind) {
    case OrderAnswer::Kind::kDone: return grpc::Status::OK;
    case OrderAnswer::Kind::kUnknown: return {grpc::StatusCode::NOT_FOUND, answer.text};
    case OrderAnswer::Kind::kRefused: break;
  }
  return {grpc::StatusCode::FAILED_PRECONDITION, answer.text};
}

// A stream that is refused before it begins.
class Refusal final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage> {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

// What gRPC's threads read is constant after construction; `core` belongs to the io thread.
struct GrpcDoor::State : std::enable_shared_from_this<GrpcDoor::State> {
  class RendezvousService final : public v1::Rendezvous::CallbackService {
   public:
    explicit RendezvousService(State& door) : door_(door) {}
    grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage>* Attach(
        grpc::CallbackServerContext* context) override {
      return door_.attach(*context);
    }

   private:
    State& door_;
  };

  class ControlService final : public v1::Control::CallbackService {
   public:
    explicit ControlService(State& door) : door_(door) {}
    grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                       const v1::DescribeRequest* request,
                                       v1::DescribeReply* reply) override {
      return door_.describe(*context, *request, reply);
    }
    grpc::ServerUnaryReactor* Operate(grpc::CallbackServerContext* context,
                                      const v1::OperateRequest* request,
                                      v1::OperateReply* reply) override {
      return door_.operate(*context, *request, reply);
    }

   private:
    State& door_;
  };

  State(boost::asio::io_context& io_context, ServerCore& server, DoorKind door_kind,
        std::function<void()> when_idle)
      : io(io_context),
        core(&server),
        kind(door_kind),
        is_trusted(kind == DoorKind::kLoopback || server.options().credentials.tls != nullptr),
        token(server.options().credentials.token),
        instance(server.options().machine.server_instance),
        limits{server.options().max_queued_bytes, server.options().max_queued_messages,
               server.outgoing()},
        idle(std::move(when_idle)),
        agents(*this),
        control(*this),
        host(kind == DoorKind::kControlSocket ? std::vector<grpc::Service*>{&control}
                                              : std::vector<grpc::Service*>{&agents, &control},
             server.options().max_incoming_bytes) {}

  // ---- gRPC threads

  grpc::Status admit(const grpc::CallbackServerContext& context) const {
    if (kind == DoorKind::kControlSocket || token.empty() || has_token(context, token)) {
      return grpc::Status::OK;
    }
    const bool shown = context.client_metadata().count(transport::kTokenKey) != 0;
    return {grpc::StatusCode::UNAUTHENTICATED,
            shown ? "the token is not the one of this server (--token-file)"
                  : "this server wants a token (--token-file)"};
  }

  // Whatever the answer, it shows that this is Muster and which.
  void introduce(grpc::CallbackServerContext& context) const {
    context.AddInitialMetadata(transport::kInstanceKey, instance);
  }

  bool takes_orders(const grpc::CallbackServerContext& context) const {
    if (kind == DoorKind::kControlSocket) return true;
    return token.empty() ? is_trusted : has_token(context, token);
  }

  // The other end of `ended`; every call counts until gRPC is done with it.
  std::function<void()> begin_call() {
    ++calls;
    return [weak = weak_from_this(), &loop = io] {
      boost::asio::post(loop, [weak] {
        if (const auto door = weak.lock()) door->call_ended();
      });
    };
  }

  grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage>* attach(
      grpc::CallbackServerContext& context) {
    if (const grpc::Status status = admit(context); !status.ok()) return new Refusal(status);
    introduce(context);
    ++calls;
    const std::weak_ptr<State> weak = weak_from_this();
    AttachStream::Callbacks callbacks;
    callbacks.opened = [weak](const std::shared_ptr<AttachStream>& stream) {
      const auto door = weak.lock();
      if (door) stream->session = door->core->attach(stream, stream->peer_addr());
    };
    callbacks.heard = [weak](AttachStream& stream, wire::FromAgent heard) {
      const auto door = weak.lock();
      if (!door) return;
      if (auto* message = std::get_if<AgentMessage>(&heard)) {
        door->core->agent_said(stream.session, std::move(*message));
      } else {
        door->core->store_asked(stream.session, std::get<StoreRequest>(std::move(heard)));
      }
    };
    callbacks.lost = [weak](AttachStream& stream) {
      if (const auto door = weak.lock()) door->core->detach(stream.session);
    };
    callbacks.ended = [weak] {
      if (const auto door = weak.lock()) door->call_ended();
    };
    return AttachStream::start(io, context, host.peer_addr(context.peer()), limits,
                               std::move(callbacks));
  }

  grpc::ServerUnaryReactor* describe(grpc::CallbackServerContext& context,
                                     const v1::DescribeRequest& request, v1::DescribeReply* reply) {
    const auto call = transport::UnaryCall<v1::DescribeReply>::start(reply, begin_call());
    introduce(context);
    if (const grpc::Status status = admit(context); !status.ok()) {
      call->finish(status);
      return call.get();
    }
    boost::asio::post(io, [weak = weak_from_this(), call, asked = request] {
      if (const auto door = weak.lock()) call->finish(grpc::Status::OK, door->description(asked));
    });
    return call.get();
  }

  grpc::ServerUnaryReactor* operate(grpc::CallbackServerContext& context,
                                    const v1::OperateRequest& request, v1::OperateReply* reply) {
    const auto call = transport::UnaryCall<v1::OperateReply>::start(reply, begin_call());
    introduce(context);
    grpc::Status status = admit(context);
    if (status.ok() && !takes_orders(context)) {
      status = {grpc::StatusCode::PERMISSION_DENIED,
                "orders are not taken over the network by a server without a token or TLS; ask on "
                "its own host, or give it one (--token-file)"};
    }
    wire::Border border;
    const JobId job = border.name("job", request.job());
    const std::string by = border.name("by", request.by());
    const Order order = read(request, border);
    if (status.ok() && !border.ok()) {
      status = {grpc::StatusCode::INVALID_ARGUMENT, std::string(border.status().message())};
    }
    if (!status.ok()) {
      call->finish(status);
      return call.get();
    }
    boost::asio::post(io, [weak = weak_from_this(), call, job, by, order] {
      const auto door = weak.lock();
      if (!door) return;
      door->core->operate(job, by, order, [call](const OrderAnswer& answer) {
        v1::OperateReply said;
        said.set_text(answer.text);
        call->finish(status_of(answer), std::move(said));
      });
    });
    return call.get();
  }

  // ---- io thread

  v1::DescribeReply description(const v1::DescribeRequest& asked) const {
    v1::DescribeReply reply;
    reply.set_server_instance(instance);
    reply.set_version(core->options().version);
    reply.set_host(host_name());
    reply.set_pid(::getpid());
    reply.set_user(core->options().user);
    if (!asked.with_jobs()) return reply;
    std::vector<JobView> jobs = core->view();
    if (!asked.job().empty()) {
      std::erase_if(jobs, [&](const JobView& job) { return job.spec.job != asked.job(); });
    }
    describe_within(kMaxDescribedBytes, jobs, reply);
    return reply;
  }

  void call_ended() {
    if (--calls == 0 && idle) idle();
  }

  boost::asio::io_context& io;
  ServerCore* const core;
  const DoorKind kind;
  const bool is_trusted;  // whoever comes in, even without a token
  const std::string token;
  const std::string instance;
  const AttachStream::Limits limits;
  const std::function<void()> idle;
  std::atomic<int> calls{0};
  RendezvousService agents;
  ControlService control;
  transport::GrpcHost host;  // last: goes first
};

GrpcDoor::GrpcDoor(boost::asio::io_context& io, ServerCore& core, DoorKind kind,
                   std::function<void()> idle)
    : state_(std::make_shared<State>(io, core, kind, std::move(idle))) {}

// Posted handlers hold the state weakly: what is still queued on the loop does nothing.
GrpcDoor::~GrpcDoor() {
  state_->host.shut_down();
}

void GrpcDoor::connected(int fd, std::string peer_addr) {
  state_->host.add(fd, std::move(peer_addr));
}

int GrpcDoor::open_calls() const {
  return state_->calls;
}

}  // namespace muster::rendezvous
