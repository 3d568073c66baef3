// SPDX-License-Identifier: Apache-2.0
//
// The border: proto/base's messages <-> muster/v1/rendezvous.proto. from_wire trusts nothing; what
// it returns is in range, bounded and complete, so the machines need not look again. A refusal is
// kInvalidArgument and names the field ("join.spec.min_nodes: is 0, must be 1 to 16384").
//
// Thread rule: pure functions, any thread.
#pragma once

#include <variant>

#include <absl/status/statusor.h>

#include "muster/v1/rendezvous.pb.h"
#include "proto/base/messages.h"
#include "proto/base/store.h"
#include "proto/wire/border.h"

namespace muster::wire {

// What may come along an Attach stream.
using FromAgent = std::variant<AgentMessage, StoreRequest>;
using FromServer = std::variant<ServerMessage, StoreReply>;

v1::AgentMessage to_wire(const AgentMessage& message);
v1::AgentMessage to_wire(const StoreRequest& request);
absl::StatusOr<FromAgent> from_wire(const v1::AgentMessage& message);

v1::ServerMessage to_wire(const ServerMessage& message);
v1::ServerMessage to_wire(const StoreReply& reply);
absl::StatusOr<FromServer> from_wire(const v1::ServerMessage& message);

// Parts that Control shares.
void write(const Envelope& from, v1::Envelope& to);
Envelope read(const v1::Envelope& from, Border& border);
void write(const RankProgress& from, v1::RankProgress& to);
RankProgress read(const v1::RankProgress& from, Border& border);
void write(const Waiting& from, v1::Waiting& to);
Waiting read(const v1::Waiting& from, Border& border);

}  // namespace muster::wire
