// SPDX-License-Identifier: Apache-2.0
//
// The names and numbers that every message carries. Vocabulary: see README, "Words".
#pragma once

#include <cstdint>
#include <string>

namespace muster {

using JobId = std::string;     // chosen by the user (--rdzv-id) or unique by default
using RunId = std::string;     // minted by the server at first forming: <UTC start>-<4 hex>
using NodeName = std::string;  // --node-name, host name, "/<node-rank>" appended where given

// One numbered life of the worker group. 0 is the first; kNoGeneration before it.
using Generation = std::int64_t;
inline constexpr Generation kNoGeneration = -1;

// One try at publishing a generation: a chosen member that does not answer Prepare is replaced
// under the same generation and the next attempt.
using Attempt = std::uint32_t;

// One life of an agent, issued by the server, rising. 0: not issued yet.
using Incarnation = std::uint64_t;

// One life of a server's knowledge of a job. A server without a journal that adopts a job from
// its agents takes the highest epoch reported plus one. 0: none.
using ServerEpoch = std::uint64_t;

// One stream between an agent and the server, numbered by the server's shell; never reused.
using SessionId = std::uint64_t;

// What makes a message current or stale. Every message in both directions carries one.
struct Envelope {
  JobId job;
  RunId run;                              // empty until the server minted it
  Generation generation = kNoGeneration;  // generation the sender speaks about
  NodeName node;
  Incarnation incarnation = 0;
  ServerEpoch epoch = 0;

  bool operator==(const Envelope&) const = default;
};

}  // namespace muster
