// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/collectives/store_client.h"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "muster/v1/store.grpc.pb.h"
#include "proto/transport/grpc_channel.h"
#include "proto/transport/grpc_settings.h"

namespace muster::runtime {
namespace {

// The agent answers a get itself when its time is up; this much later something is wrong.
constexpr Duration kSlack = 10s;

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status to_absl(const grpc::Status& status) {
  // gRPC's codes are absl's.
  return {static_cast<absl::StatusCode>(status.error_code()),
          "MUSTER_STORE: " + status.error_message()};
}

}  // namespace

absl::StatusOr<StoreClient::Config> StoreClient::config_from_environment() {
  Config config;
  config.endpoint = variable("MUSTER_STORE");
  if (config.endpoint.empty()) {
    return absl::NotFoundError("MUSTER_STORE is not set");
  }
  config.job = variable("MUSTER_JOB_ID");
  if (config.job.empty()) return absl::InvalidArgumentError("MUSTER_JOB_ID is not set");
  const std::string_view generation = variable("MUSTER_GENERATION");
  const char* end = generation.data() + generation.size();
  const auto [stop, error] = std::from_chars(generation.data(), end, config.generation);
  if (generation.empty() || error != std::errc{} || stop != end || config.generation < 0) {
    return absl::InvalidArgumentError("MUSTER_GENERATION is not a number");
  }
  const std::string path = variable("MUSTER_STORE_TOKEN_FILE");
  if (path.empty()) return absl::InvalidArgumentError("MUSTER_STORE_TOKEN_FILE is not set");
  std::ifstream file(path);
  if (!std::getline(file, config.token) || config.token.empty()) {
    return absl::InvalidArgumentError("MUSTER_STORE_TOKEN_FILE: cannot read a token from " + path);
  }
  return config;
}

struct StoreClient::State {
  explicit State(Config with) : config(std::move(with)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(transport::kMaxGrpcMessageBytes);
    arguments.SetMaxSendMessageSize(transport::kMaxGrpcMessageBytes);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // "ipv4:" keeps gRPC's name resolver out of it.
    stub = v1::Store::NewStub(grpc::CreateCustomChannel(
        "ipv4:" + config.endpoint, grpc::InsecureChannelCredentials(), arguments));
  }

  template <class Request>
  Request request(const std::string& key) const {
    Request out;
    out.mutable_scope()->set_job(config.job);
    out.mutable_scope()->set_generation(config.generation);
    out.set_key(key);
    return out;
  }

  void prepare(grpc::ClientContext& context, Duration timeout) const {
    transport::present_token(context, config.token);
    context.set_deadline(std::chrono::system_clock::now() + timeout);
  }

  const Config config;
  std::unique_ptr<v1::Store::Stub> stub;
};

StoreClient::StoreClient(Config config) : state_(std::make_unique<State>(std::move(config))) {}

StoreClient::~StoreClient() = default;

absl::Status StoreClient::set(const std::string& key, const std::string& value) {
  auto request = state_->request<v1::SetRequest>(key);
  request.set_value(value);
  grpc::ClientContext context;
  state_->prepare(context, state_->config.call_timeout);
  v1::SetReply reply;
  const grpc::Status status = state_->stub->Set(&context, request, &reply);
  return status.ok() ? absl::OkStatus() : to_absl(status);
}

absl::StatusOr<std::string> StoreClient::get(const std::string& key, Duration wait) {
  auto request = state_->request<v1::GetRequest>(key);
  request.set_wait_ns(wait.count());
  grpc::ClientContext context;
  state_->prepare(context, wait + kSlack);
  v1::GetReply reply;
  const grpc::Status status = state_->stub->Get(&context, request, &reply);
  if (!status.ok()) return to_absl(status);
  return std::move(*reply.mutable_value());
}

absl::StatusOr<std::int64_t> StoreClient::add(const std::string& key, std::int64_t delta) {
  auto request = state_->request<v1::AddRequest>(key);
  request.set_delta(delta);
  grpc::ClientContext context;
  state_->prepare(context, state_->config.call_timeout);
  v1::AddReply reply;
  const grpc::Status status = state_->stub->Add(&context, request, &reply);
  if (!status.ok()) return to_absl(status);
  return reply.sum();
}

absl::Status StoreClient::remove(const std::string& key) {
  const auto request = state_->request<v1::DeleteRequest>(key);
  grpc::ClientContext context;
  state_->prepare(context, state_->config.call_timeout);
  v1::DeleteReply reply;
  const grpc::Status status = state_->stub->Delete(&context, request, &reply);
  return status.ok() ? absl::OkStatus() : to_absl(status);
}

}  // namespace muster::runtime
