// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/grpc_channel.h"

#include <array>

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>

#include "proto/transport/grpc_settings.h"

namespace muster::transport {

std::shared_ptr<grpc::Channel> channel_over(File file) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxGrpcMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kClientKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, kBandwidthProbe);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kReadAheadBytes);
  return grpc::CreateCustomInsecureChannelFromFd("muster", file.release(), arguments);
}

void present_token(grpc::ClientContext& context, const std::string& token) {
  if (!token.empty()) context.AddMetadata(kTokenKey, bearer(token));
}

std::string instance_of(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerInitialMetadata();
  const auto instance = metadata.find(kInstanceKey);
  return instance == metadata.end() ? ""
                                    : std::string(instance->second.data(), instance->second.size());
}

std::string to_text(const grpc::Status& status) {
  constexpr std::array kNames = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT", "DEADLINE",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "EXHAUSTED",        "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",         "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto code = static_cast<std::size_t>(status.error_code());
  const std::string name = code < kNames.size() ? kNames[code] : "code " + std::to_string(code);
  return status.error_message().empty() ? name : name + ": " + status.error_message();
}

}  // namespace muster::transport
