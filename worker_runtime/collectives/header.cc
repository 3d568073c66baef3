// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/collectives/header.h"

#include <array>

#include <absl/strings/str_cat.h>

namespace muster::runtime {
namespace {

const char* operation_name(std::uint16_t operation) {
  switch (static_cast<Operation>(operation)) {
    case Operation::kBarrier: return "barrier";
    case Operation::kBroadcast: return "broadcast";
    case Operation::kAllReduce: return "all_reduce";
    case Operation::kControl: return "control";
    case Operation::kAllGather: return "all_gather";
    case Operation::kReduceTree: return "reduce_tree";
  }
  return "unknown operation";
}

const char* type_name(std::uint16_t type) {
  constexpr std::array<const char*, 6> kNames{"bytes", "f32", "bf16", "f16", "f64", "u64"};
  return type < kNames.size() ? kNames.at(type) : "unknown type";
}

std::string describe(const OperationHeader& header) {
  return absl::StrCat("{", operation_name(header.operation), " ", type_name(header.type),
                      ", sends ", header.send_bytes, " B, expects ", header.expect_bytes,
                      " B, sequence ", header.sequence, ", generation ", header.generation,
                      ", layout ", absl::Hex(header.layout), "}");
}

template <typename T>
void put(std::byte*& at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    *at++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <typename T>
T take(const std::byte*& at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(*at++) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

OperationHeader make_header(const OperationKey& key, std::int64_t generation,
                            std::uint64_t sequence, std::size_t send_bytes,
                            std::size_t expect_bytes) {
  OperationHeader header;
  header.generation = static_cast<std::uint32_t>(generation);
  header.sequence = static_cast<std::uint32_t>(sequence);
  header.operation = static_cast<std::uint16_t>(key.operation);
  header.type = static_cast<std::uint16_t>(key.type);
  header.layout = static_cast<std::uint32_t>(key.layout_hash ^ (key.layout_hash >> 32U));
  header.send_bytes = send_bytes;
  header.expect_bytes = expect_bytes;
  return header;
}

std::array<std::byte, kHeaderBytes> encode(const OperationHeader& header) {
  std::array<std::byte, kHeaderBytes> bytes{};
  std::byte* at = bytes.data();
  put(at, header.generation);
  put(at, header.sequence);
  put(at, header.operation);
  put(at, header.type);
  put(at, header.layout);
  put(at, header.send_bytes);
  put(at, header.expect_bytes);
  return bytes;
}

OperationHeader decode(const std::byte* bytes) {
  OperationHeader header;
  header.generation = take<std::uint32_t>(bytes);
  header.sequence = take<std::uint32_t>(bytes);
  header.operation = take<std::uint16_t>(bytes);
  header.type = take<std::uint16_t>(bytes);
  header.layout = take<std::uint32_t>(bytes);
  header.send_bytes = take<std::uint64_t>(bytes);
  header.expect_bytes = take<std::uint64_t>(bytes);
  return header;
}

absl::Status compare(const OperationHeader& mine, const OperationHeader& theirs, int rank,
                     int peer) {
  OperationHeader wanted = mine;
  wanted.send_bytes = mine.expect_bytes;
  wanted.expect_bytes = mine.send_bytes;
  if (theirs == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("collective mismatch at sequence ", mine.sequence, ": rank ", rank, " is in ",
                   describe(mine), ", rank ", peer, " is in ", describe(theirs)));
}

}  // namespace muster::runtime
