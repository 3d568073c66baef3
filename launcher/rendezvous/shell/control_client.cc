// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/control_client.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>

#include "launcher/rendezvous/shell/control_wire.h"
#include "muster/v1/control.grpc.pb.h"
#include "proto/transport/dialer.h"
#include "proto/transport/grpc_channel.h"

namespace muster::rendezvous {
namespace {

using transport::Dialed;
using transport::Dialer;

// Dial, one call, one result. Everything but the call's end happens on the io thread.
template <class Request, class Reply>
class Exchange : public std::enable_shared_from_this<Exchange<Request, Reply>> {
 public:
  struct Result {
    Dialed dialed;         // its kind says whether there was a call
    grpc::Status status;   // of the call
    std::string instance;  // of the server; empty: not Muster
    Reply reply;
  };
  using Done = std::function<void(Result)>;
  using Method = void (v1::Control::Stub::async::*)(grpc::ClientContext*, const Request*, Reply*,
                                                    std::function<void(grpc::Status)>);

  Exchange(boost::asio::io_context& io, const ControlTarget& target, Duration timeout,
           Method method, Request request, Done done)
      : io_(io),
        token_(target.credentials.token),
        deadline_(std::chrono::system_clock::now() + timeout),
        method_(method),
        request_(std::move(request)),
        done_(std::move(done)) {
    dialer_ =
        Dialer::start(io, {target.host, target.port, target.unix_path}, target.credentials.tls,
                      timeout, [this](Dialed dialed) { on_dialed(std::move(dialed)); });
  }

  ~Exchange() {
    dialer_.reset();
    std::unique_lock lock(mutex_);
    if (!calling_) return;
    context_.TryCancel();
    ended_.wait(lock, [this] { return !calling_; });
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

 private:
  void on_dialed(Dialed dialed) {
    result_.dialed = std::move(dialed);
    if (result_.dialed.kind != Dialed::Kind::kConnected) return report();
    stub_ = v1::Control::NewStub(transport::channel_over(std::move(result_.dialed.file)));
    transport::present_token(context_, token_);
    context_.set_deadline(deadline_);
    calling_ = true;
    (stub_->async()->*method_)(&context_, &request_, &result_.reply,
                               [this](grpc::Status status) { on_answer(std::move(status)); });
  }

  // On a gRPC thread; the destructor waits for the end of this.
  void on_answer(grpc::Status status) {
    const std::lock_guard lock(mutex_);
    boost::asio::post(io_, [weak = this->weak_from_this(), status = std::move(status)] {
      const auto self = weak.lock();
      if (!self) return;
      self->result_.status = status;
      self->result_.instance = transport::instance_of(self->context_);
      self->report();
    });
    calling_ = false;
    ended_.notify_all();
  }

  void report() {
    const Done done = std::move(done_);
    done(std::move(result_));
  }

  boost::asio::io_context& io_;
  const std::string token_;
  const std::chrono::system_clock::time_point deadline_;
  const Method method_;
  const Request request_;
  Done done_;
  std::unique_ptr<Dialer> dialer_;
  std::unique_ptr<v1::Control::Stub> stub_;
  grpc::ClientContext context_;
  Result result_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool calling_ = false;
};

using Describing = Exchange<v1::DescribeRequest, v1::DescribeReply>;
using Operating = Exchange<v1::OperateRequest, v1::OperateReply>;

// Runs one exchange on a loop of its own.
template <class Kind, class Method, class Request>
typename Kind::Result run(const ControlTarget& target, Duration timeout, Method method,
                          Request request) {
  boost::asio::io_context io;
  std::optional<typename Kind::Result> out;
  const auto exchange =
      std::make_shared<Kind>(io, target, timeout, method, std::move(request),
                             [&](typename Kind::Result result) { out = std::move(result); });
  const auto work = boost::asio::make_work_guard(io);
  while (!out)
    io.run_one();
  return *std::move(out);
}

std::string where(const ControlTarget& target) {
  return transport::to_text(transport::Endpoint{target.host, target.port, target.unix_path});
}

// What went wrong before or in the call; OK if it was answered by Muster with OK.
template <class Result>
absl::Status failure_of(const Result& result, const ControlTarget& target) {
  switch (result.dialed.kind) {
    case Dialed::Kind::kSilent: return absl::DeadlineExceededError(result.dialed.text);
    case Dialed::Kind::kNothing:
    case Dialed::Kind::kStranger: return absl::UnavailableError(result.dialed.text);
    case Dialed::Kind::kUntrusted: return absl::UnauthenticatedError(result.dialed.text);
    case Dialed::Kind::kConnected: break;
  }
  if (result.status.ok() && !result.instance.empty()) return absl::OkStatus();
  if (result.status.ok() || result.status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnavailableError(where(target) + " is a gRPC server, but not Muster");
  }
  return {static_cast<absl::StatusCode>(result.status.error_code()),
          where(target) + ": " + result.status.error_message()};
}

absl::StatusOr<ServerDescription> read_description(const v1::DescribeReply& from) {
  wire::Border border;
  ServerDescription to;
  to.server_instance = border.required_name("server_instance", from.server_instance());
  to.version = border.name("version", from.version());
  to.host = border.name("host", from.host());
  to.user = border.name("user", from.user());
  to.pid = border.pid("pid", from.pid());
  for (const v1::JobDescription& job : from.jobs()) {
    to.jobs.push_back(border.within("jobs", [&] { return read(job, border); }));
  }
  to.left_out = border.name("left_out", from.left_out());
  if (!border.ok()) return border.status();
  return to;
}

Answerer judge(const Describing::Result& result, const ControlTarget& target) {
  Answerer out;
  out.addr = result.dialed.addr;
  switch (result.dialed.kind) {
    case Dialed::Kind::kConnected: break;
    case Dialed::Kind::kNothing: out.kind = Answerer::Kind::kNothing; break;
    case Dialed::Kind::kStranger:
    case Dialed::Kind::kUntrusted: out.kind = Answerer::Kind::kStranger; break;
    case Dialed::Kind::kSilent: out.kind = Answerer::Kind::kSilent; break;
  }
  if (result.dialed.kind != Dialed::Kind::kConnected) {
    out.text = result.dialed.text;
    out.unauthenticated = result.dialed.kind == Dialed::Kind::kUntrusted;
    return out;
  }
  const absl::Status failure = failure_of(result, target);
  out.text = std::string(failure.message());
  if (!result.instance.empty()) {
    out.kind = Answerer::Kind::kMuster;
    if (auto server = read_description(result.reply); failure.ok() && server.ok()) {
      out.server = *std::move(server);
    }
    out.server.server_instance = result.instance;  // known even where a token is wanted
    out.unauthenticated = absl::IsUnauthenticated(failure);
    return out;
  }
  switch (result.status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED: out.kind = Answerer::Kind::kSilent; break;
    case grpc::StatusCode::UNAVAILABLE: out.kind = Answerer::Kind::kNothing; break;
    default: out.kind = Answerer::Kind::kStranger; break;
  }
  return out;
}

class AsyncProbe : public Probe {
 public:
  std::shared_ptr<Describing> exchange;
};

constexpr Describing::Method kDescribe = &v1::Control::Stub::async::Describe;
constexpr Operating::Method kOperate = &v1::Control::Stub::async::Operate;

}  // namespace

absl::StatusOr<ServerDescription> describe(const ControlTarget& target, Duration timeout,
                                           const JobId& job) {
  v1::DescribeRequest request;
  request.set_with_jobs(true);
  request.set_job(job);
  const auto result = run<Describing>(target, timeout, kDescribe, request);
  if (const absl::Status failure = failure_of(result, target); !failure.ok()) return failure;
  return read_description(result.reply);
}

absl::StatusOr<std::string> operate(const ControlTarget& target, const JobId& job,
                                    const Order& order, const std::string& by, Duration timeout) {
  v1::OperateRequest request;
  request.set_job(job);
  request.set_by(by);
  write(order, request);
  const auto result = run<Operating>(target, timeout, kOperate, request);
  if (const absl::Status failure = failure_of(result, target); !failure.ok()) return failure;
  return result.reply.text();
}

Answerer probe(const ControlTarget& target, Duration timeout) {
  return judge(run<Describing>(target, timeout, kDescribe, v1::DescribeRequest()), target);
}

std::unique_ptr<Probe> probe_async(boost::asio::io_context& io, const ControlTarget& target,
                                   Duration timeout, std::function<void(Answerer)> answered) {
  auto probe = std::make_unique<AsyncProbe>();
  probe->exchange = std::make_shared<Describing>(
      io, target, timeout, kDescribe, v1::DescribeRequest(),
      [target, answered = std::move(answered)](const Describing::Result& result) {
        answered(judge(result, target));
      });
  return probe;
}

}  // namespace muster::rendezvous
