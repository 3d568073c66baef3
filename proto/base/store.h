// SPDX-License-Identifier: Apache-2.0
//
// The workers' key-value store as data. A worker speaks gRPC to its agent's loopback port; the
// agent multiplexes over its stream; the server keeps the keys, per job and generation. When a
// generation ends its keys are deleted and everyone who waits is answered kStale.
#pragma once

#include <cstdint>
#include <string>

#include "proto/base/ids.h"
#include "proto/base/time.h"

namespace muster {

struct StoreRequest {
  // kCancel: nobody waits any more for the kGet with this id. It gets no reply.
  enum class Op : std::uint8_t { kSet, kGet, kAdd, kDelete, kCancel };
  std::uint64_t id = 0;  // chosen by the agent, unique on its stream; the reply carries it
  Generation generation = kNoGeneration;  // of the asking worker
  Op op = Op::kGet;
  std::string key;         // <= kMaxStoreKeyBytes
  std::string value;       // kSet; <= kMaxStoreValueBytes
  std::int64_t delta = 0;  // kAdd: added to the decimal number under the key (missing: 0)
  Duration wait{0};        // kGet: how long to wait for the key; 0: answer at once
  bool operator==(const StoreRequest&) const = default;
};

struct StoreReply {
  enum class Status : std::uint8_t {
    kOk,
    kNotFound,  // kGet: no such key within `wait`; kDelete: no such key
    kStale,     // the generation is over or was never this server's
    kRefused    // a limit; `text` says which
  };
  std::uint64_t id = 0;
  Status status = Status::kOk;
  std::string value;        // kGet
  std::int64_t number = 0;  // kAdd: the sum
  std::string text;
  bool operator==(const StoreReply&) const = default;
};

inline constexpr std::size_t kMaxStoreKeyBytes = 1024;
inline constexpr std::size_t kMaxStoreValueBytes = 1U << 20U;

}  // namespace muster
