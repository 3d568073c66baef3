// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/grpc_host.h"

#include <chrono>
#include <map>
#include <mutex>
#include <unistd.h>
#include <utility>

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include "proto/base/check.h"
#include "proto/transport/grpc_settings.h"

namespace muster::transport {

struct GrpcHost::State {
  std::vector<grpc::Service*> services;
  std::size_t memory = 0;
  std::unique_ptr<grpc::Server> server;
  bool is_shut = false;
  mutable std::mutex mutex;                  // guards `peers`
  std::map<std::string, std::string> peers;  // "fd:7" -> address; at most one a descriptor

  void start() {
    grpc::ServerBuilder builder;
    for (grpc::Service* service : services)
      builder.RegisterService(service);
    builder.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
    builder.SetMaxSendMessageSize(kMaxGrpcMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kServerKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kClientKeepaliveMs / 4);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, kBandwidthProbe);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kReadAheadBytes);
    grpc::ResourceQuota quota("muster");
    quota.Resize(memory);
    builder.SetResourceQuota(quota);
    server = builder.BuildAndStart();
    MUSTER_CHECK(server != nullptr);  // without a listener nothing can fail
  }
};

GrpcHost::GrpcHost(std::vector<grpc::Service*> services, std::size_t memory)
    : state_(std::make_unique<State>()) {
  state_->memory = memory;
  state_->services = std::move(services);
}

GrpcHost::~GrpcHost() {
  shut_down();
}

void GrpcHost::add(int fd, std::string peer_addr) {
  if (state_->is_shut) {
    ::close(fd);
    return;
  }
  if (!state_->server) state_->start();
  {
    const std::lock_guard lock(state_->mutex);
    state_->peers["fd:" + std::to_string(fd)] = std::move(peer_addr);
  }
  grpc::AddInsecureChannelFromFd(state_->server.get(), fd);
}

std::string GrpcHost::peer_addr(const std::string& grpc_peer) const {
  const std::lock_guard lock(state_->mutex);
  const auto peer = state_->peers.find(grpc_peer);
  return peer == state_->peers.end() ? "" : peer->second;
}

void GrpcHost::shut_down() {
  state_->is_shut = true;
  if (!state_->server) return;
  state_->server->Shutdown(std::chrono::system_clock::now());
  state_->server.reset();
}

bool GrpcHost::started() const {
  return state_->server != nullptr;
}

}  // namespace muster::transport
