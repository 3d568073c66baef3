// SPDX-License-Identifier: Apache-2.0
//
// A client's channel over a descriptor that a Dialer connected: it never reconnects by itself.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "proto/transport/file.h"

namespace muster::transport {

std::shared_ptr<grpc::Channel> channel_over(File file);

// Adds the bearer token; nothing if it is empty.
void present_token(grpc::ClientContext& context, const std::string& token);

// Whether an answer of a Muster server: every one carries its instance id. Empty: it is not.
std::string instance_of(const grpc::ClientContext& context);

// "UNAVAILABLE: text" for people.
std::string to_text(const grpc::Status& status);

}  // namespace muster::transport
