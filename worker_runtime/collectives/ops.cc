// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/collectives/ops.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

#include "proto/base/check.h"
#include "worker_runtime/numerics/half.h"

namespace muster::runtime {
namespace {

using numerics::to_bf16;
using numerics::to_f16;
using numerics::to_float;

using SendSpans = std::vector<std::span<const std::byte>>;
using RecvSpans = std::vector<std::span<std::byte>>;

std::size_t ranks(const Collectives& group) {
  return static_cast<std::size_t>(group.size());
}
std::size_t own(const Collectives& group) {
  return static_cast<std::size_t>(group.rank());
}

struct Slice {
  std::size_t first = 0;
  std::size_t count = 0;
};

// The part of `count` elements that `rank` owns: whole blocks, dealt like leaves.
Slice slice_of(std::size_t count, std::size_t block, int size, int rank) {
  const std::size_t blocks = (count + block - 1) / block;
  const LeafRange range = leaf_range(blocks, size, rank);
  const std::size_t first = std::min<std::size_t>(range.first * block, count);
  const std::size_t last = std::min<std::size_t>((range.first + range.count) * block, count);
  return {first, last - first};
}

std::vector<Slice> slices_of(const Collectives& group, std::size_t count, std::size_t block) {
  MUSTER_CHECK(block > 0);
  std::vector<Slice> slices;
  for (int rank = 0; rank < group.size(); ++rank) {
    slices.push_back(slice_of(count, block, group.size(), rank));
  }
  return slices;
}

template <typename T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

// Every owner's finished slice to everybody; element type T as it travels.
template <typename T>
absl::Status gather_slices(Collectives& group, const OperationKey& key,
                           const std::vector<Slice>& slices, std::span<T> all) {
  const Slice mine = slices[own(group)];
  SendSpans send(ranks(group), std::as_bytes(all.subspan(mine.first, mine.count)));
  RecvSpans recv;
  for (const Slice& slice : slices) {
    recv.push_back(std::as_writable_bytes(all.subspan(slice.first, slice.count)));
  }
  return group.exchange(key, send, recv);
}

void add_into(std::span<float> sum, std::span<const float> term) {
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += term[i];
}

absl::Status all_reduce_f32(Collectives& group, std::span<float> data, std::size_t block,
                            std::uint64_t layout_hash) {
  const OperationKey key{Operation::kAllReduce, WireType::kF32, layout_hash};
  const std::vector<Slice> slices = slices_of(group, data.size(), block);
  const Slice mine = slices[own(group)];
  std::vector<std::vector<float>> parts(ranks(group));
  SendSpans send;
  RecvSpans recv;
  for (std::size_t rank = 0; rank < ranks(group); ++rank) {
    if (rank != own(group)) parts[rank].resize(mine.count);
    send.push_back(std::as_bytes(data.subspan(slices[rank].first, slices[rank].count)));
    recv.push_back(std::as_writable_bytes(std::span(parts[rank])));
  }
  absl::Status status = group.exchange(key, send, recv);
  if (!status.ok()) return status;

  const std::span<float> own_slice = data.subspan(mine.first, mine.count);
  parts[own(group)].assign(own_slice.begin(), own_slice.end());
  std::copy(parts[0].begin(), parts[0].end(), own_slice.begin());
  for (std::size_t rank = 1; rank < ranks(group); ++rank)
    add_into(own_slice, parts[rank]);
  return gather_slices(group, key, slices, data);
}

// FP32 on both ends, 16 bits on the wire: each addend is rounded once by its sender, the sum is
// added up in FP32 in rank order and rounded once by its owner.
template <typename Half>
absl::Status all_reduce_half(Collectives& group, std::span<float> data, WireType type,
                             std::size_t block, std::uint64_t layout_hash, Half (*narrow)(float),
                             float (*widen)(Half)) {
  const OperationKey key{Operation::kAllReduce, type, layout_hash};
  const std::vector<Slice> slices = slices_of(group, data.size(), block);
  const Slice mine = slices[own(group)];
  std::vector<Half> wire(data.size());
  std::transform(data.begin(), data.end(), wire.begin(), narrow);
  std::vector<std::vector<Half>> parts(ranks(group));
  SendSpans send;
  RecvSpans recv;
  for (std::size_t rank = 0; rank < ranks(group); ++rank) {
    parts[rank].resize(mine.count);
    const std::span<Half> slice = std::span(wire).subspan(slices[rank].first, slices[rank].count);
    if (rank == own(group)) std::copy(slice.begin(), slice.end(), parts[rank].begin());
    send.push_back(std::as_bytes(slice));
    recv.push_back(std::as_writable_bytes(std::span(parts[rank])));
  }
  absl::Status status = group.exchange(key, send, recv);
  if (!status.ok()) return status;

  for (std::size_t i = 0; i < mine.count; ++i) {
    float sum = widen(parts[0][i]);
    for (std::size_t rank = 1; rank < ranks(group); ++rank)
      sum += widen(parts[rank][i]);
    wire[mine.first + i] = narrow(sum);
  }
  status = gather_slices(group, key, slices, std::span(wire));
  if (!status.ok()) return status;
  std::transform(wire.begin(), wire.end(), data.begin(), widen);
  return absl::OkStatus();
}

// Adds up the tree over [first, first + width) from the subtrees at hand, in `sum`. A right
// half beyond the last leaf does not exist: the left half is the node.
class TreeSum {
 public:
  struct Node {
    Subtree subtree;
    std::span<const float> values;
  };

  TreeSum(std::vector<Node> nodes, std::uint64_t leaf_count)
      : nodes_(std::move(nodes)), leaf_count_(leaf_count) {
    std::sort(nodes_.begin(), nodes_.end(),
              [](const Node& a, const Node& b) { return a.subtree.first < b.subtree.first; });
  }

  void root(std::span<float> sum) const { add_up(0, std::bit_ceil(leaf_count_), sum); }

 private:
  void add_up(std::uint64_t first, std::uint64_t width, std::span<float> sum) const {
    const auto node =
        std::lower_bound(nodes_.begin(), nodes_.end(), first,
                         [](const Node& a, std::uint64_t leaf) { return a.subtree.first < leaf; });
    if (node != nodes_.end() && node->subtree == Subtree{first, width}) {
      std::copy(node->values.begin(), node->values.end(), sum.begin());
      return;
    }
    const std::uint64_t half = width / 2;
    MUSTER_CHECK(half > 0);  // every leaf is covered by somebody's subtree
    add_up(first, half, sum);
    if (first + half >= leaf_count_) return;
    std::vector<float> right(sum.size());
    add_up(first + half, half, right);
    add_into(sum, right);
  }

  std::vector<Node> nodes_;
  std::uint64_t leaf_count_;
};

}  // namespace

int error_exit_code(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable: return 81;
    case absl::StatusCode::kFailedPrecondition: return 82;
    case absl::StatusCode::kDeadlineExceeded: return 83;
    default: return 70;
  }
}

absl::Status barrier(Collectives& group) {
  const SendSpans send(ranks(group));
  const RecvSpans recv(ranks(group));
  return group.exchange({Operation::kBarrier, WireType::kBytes, 0}, send, recv);
}

absl::Status broadcast(Collectives& group, int root, std::span<std::byte> data) {
  MUSTER_CHECK(root >= 0 && root < group.size());
  SendSpans send(ranks(group));
  RecvSpans recv(ranks(group));
  if (group.rank() == root) {
    std::fill(send.begin(), send.end(), std::span<const std::byte>(data));
  } else {
    recv[static_cast<std::size_t>(root)] = data;
  }
  return group.exchange({Operation::kBroadcast, WireType::kBytes, static_cast<std::uint64_t>(root)},
                        send, recv);
}

absl::StatusOr<std::vector<std::vector<std::byte>>> all_gather(Collectives& group,
                                                               std::span<const std::byte> mine) {
  const OperationKey key{Operation::kAllGather, WireType::kBytes, 0};
  const std::uint64_t own_size = mine.size();
  std::vector<std::uint64_t> sizes(ranks(group), own_size);
  const SendSpans send_size(ranks(group), std::as_bytes(std::span(&own_size, 1)));
  RecvSpans recv_size;
  for (std::uint64_t& size : sizes) {
    recv_size.push_back(std::as_writable_bytes(std::span(&size, 1)));
  }
  absl::Status status = group.exchange(key, send_size, recv_size);
  if (!status.ok()) return status;

  std::vector<std::vector<std::byte>> result(ranks(group));
  RecvSpans recv;
  for (std::size_t rank = 0; rank < ranks(group); ++rank) {
    result[rank].resize(sizes[rank]);
    recv.emplace_back(result[rank]);
  }
  status = group.exchange(key, SendSpans(ranks(group), mine), recv);
  if (!status.ok()) return status;
  result[own(group)].assign(mine.begin(), mine.end());
  return result;
}

absl::Status all_reduce_sum(Collectives& group, std::span<float> data, WireType wire,
                            std::size_t block, std::uint64_t layout_hash) {
  switch (wire) {
    case WireType::kBf16:
      return all_reduce_half<Bf16>(group, data, wire, block, layout_hash, to_bf16, to_float);
    case WireType::kF16:
      return all_reduce_half<F16>(group, data, wire, block, layout_hash, to_f16, to_float);
    default:
      MUSTER_CHECK(wire == WireType::kF32);
      return all_reduce_f32(group, data, block, layout_hash);
  }
}

absl::Status all_reduce_tree(Collectives& group, std::uint64_t leaf_count,
                             std::span<const std::span<const float>> subtrees,
                             std::span<float> result, std::size_t block,
                             std::uint64_t layout_hash) {
  MUSTER_CHECK(leaf_count > 0);
  const OperationKey key{Operation::kReduceTree, WireType::kF32, layout_hash};
  const std::vector<Slice> slices = slices_of(group, result.size(), block);
  const Slice mine = slices[own(group)];

  // To every owner: its slice of each of our subtrees, one behind the other.
  std::vector<std::vector<float>> outgoing(ranks(group));
  std::vector<std::vector<float>> incoming(ranks(group));
  std::vector<std::vector<Subtree>> held(ranks(group));
  SendSpans send;
  RecvSpans recv;
  for (std::size_t rank = 0; rank < ranks(group); ++rank) {
    const LeafRange range = leaf_range(leaf_count, group.size(), static_cast<int>(rank));
    held[rank] = maximal_subtrees(range.first, range.count);
    for (const std::span<const float> values : subtrees) {
      MUSTER_CHECK(values.size() == result.size());
      const auto slice = values.subspan(slices[rank].first, slices[rank].count);
      outgoing[rank].insert(outgoing[rank].end(), slice.begin(), slice.end());
    }
    if (rank != own(group)) incoming[rank].resize(held[rank].size() * mine.count);
    send.push_back(std::as_bytes(std::span(outgoing[rank])));
    recv.push_back(std::as_writable_bytes(std::span(incoming[rank])));
  }
  MUSTER_CHECK(held[own(group)].size() == subtrees.size());
  absl::Status status = group.exchange(key, send, recv);
  if (!status.ok()) return status;
  incoming[own(group)] = std::move(outgoing[own(group)]);

  std::vector<TreeSum::Node> nodes;
  for (std::size_t rank = 0; rank < ranks(group); ++rank) {
    for (std::size_t i = 0; i < held[rank].size(); ++i) {
      nodes.push_back({held[rank][i],
                       std::span<const float>(incoming[rank]).subspan(i * mine.count, mine.count)});
    }
  }
  TreeSum(std::move(nodes), leaf_count).root(result.subspan(mine.first, mine.count));
  return gather_slices(group, key, slices, result);
}

std::vector<Subtree> maximal_subtrees(std::uint64_t first, std::uint64_t count) {
  std::vector<Subtree> subtrees;
  const std::uint64_t end = first + count;
  while (first < end) {
    std::uint64_t width =
        first == 0 ? std::bit_floor(end) : std::uint64_t{1} << std::countr_zero(first);
    while (first + width > end)
      width /= 2;
    subtrees.push_back({first, width});
    first += width;
  }
  return subtrees;
}

LeafRange leaf_range(std::uint64_t leaf_count, int size, int rank) {
  const auto parts = static_cast<std::uint64_t>(size);
  const auto index = static_cast<std::uint64_t>(rank);
  const std::uint64_t longer = leaf_count % parts;
  const std::uint64_t length = leaf_count / parts;
  return {index * length + std::min(index, longer), length + (index < longer ? 1 : 0)};
}

}  // namespace muster::runtime
