// SPDX-License-Identifier: Apache-2.0
//
// What both ends of every gRPC connection of Muster agree on, and the bearer token.
#pragma once

#include <cstddef>
#include <string>

#include "proto/wire/limits.h"

namespace muster::transport {

inline constexpr int kMaxGrpcMessageBytes = wire::kMaxMessageBytes;

// gRPC takes a message in as it arrives, whatever length it announces, and looks at the limit when
// it is whole. Beyond this, on all connections of one door, it resets streams, others too: they
// come back. Some 40 KiB a connection are in use anyhow.
inline constexpr std::size_t kMaxGrpcMemoryBytes = std::size_t{2} << 30U;

// A peer that answers no ping is dead: its machine lost power or its network, so no FIN came. The
// agent looks often, since its lease runs; the server hears heartbeats anyway.
inline constexpr int kClientKeepaliveMs = 4000;
inline constexpr int kServerKeepaliveMs = 20000;
inline constexpr int kKeepaliveTimeoutMs = 6000;

// gRPC's probe of the bandwidth answers every received message with a ping and its timer: a third
// of what an idle job wakes for. Without it the window is fixed, wide enough for a whole value.
inline constexpr int kBandwidthProbe = 0;
inline constexpr int kReadAheadBytes = 1 << 20;

// Sent by a Muster server with the initial metadata of every call: its random id.
inline constexpr const char* kInstanceKey = "muster-instance";

inline constexpr const char* kTokenKey = "authorization";
inline std::string bearer(const std::string& token) {
  return "Bearer " + token;
}

// Whether the header `given` carries `token`, in a time that does not depend on where they differ.
template <class Text>
bool token_matches(const Text& given, const std::string& token) {
  const std::string wanted = bearer(token);
  if (given.size() != wanted.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference |=
        static_cast<unsigned char>(given.data()[i]) ^ static_cast<unsigned char>(wanted[i]);
  }
  return difference == 0;
}

}  // namespace muster::transport
