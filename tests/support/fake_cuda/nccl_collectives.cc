// SPDX-License-Identifier: Apache-2.0
//
// Collectives of the fake NCCL: what is checked at the call, what is added when all have come.
#include <algorithm>
#include <cstring>

#include "proto/base/check.h"
#include "tests/support/fake_cuda/nccl_files.h"
#include "worker_runtime/cuda/kernels/pack.h"

namespace muster::runtime::cuda {

std::size_t fake_nccl_size(int type) {
  switch (type) {
    case kNcclU8: return 1;
    case kNcclF16:
    case kNcclBf16: return 2;
    case kNcclF32: return 4;
    case kNcclU64:
    case kNcclF64: return 8;
    default: return 0;
  }
}

namespace {

template <class T>
T at(const void* array, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(array) + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put(void* array, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(array) + index * sizeof(T), &value, sizeof(T));
}

// In rank order, in Sum; rounded to T once.
template <class T, class Sum, class In, class Out>
void add_up(const FakeRound& round, void* out, std::size_t count, In in, Out rounded) {
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum = in(at<T>(round.parts[0]->send, i));
    for (std::size_t r = 1; r < round.parts.size(); ++r)
      sum = sum + in(at<T>(round.parts[r]->send, i));
    put<T>(out, i, rounded(sum));
  }
}

void sum_all(const FakeRound& round, void* out, std::size_t count, int type) {
  const auto same = [](auto value) { return value; };
  const auto number = [](auto bits) { return to_number(bits); };
  switch (type) {
    case kNcclU8:
      add_up<std::uint8_t, unsigned>(round, out, count, same,
                                     [](unsigned sum) { return static_cast<std::uint8_t>(sum); });
      break;
    case kNcclU64: add_up<std::uint64_t, std::uint64_t>(round, out, count, same, same); break;
    case kNcclF64: add_up<double, double>(round, out, count, same, same); break;
    case kNcclF16:
      add_up<F16, float>(round, out, count, number,
                         [](float sum) { return F16{numerics::to_f16(sum).bits}; });
      break;
    case kNcclBf16:
      add_up<Bf16, float>(round, out, count, number,
                          [](float sum) { return Bf16{numerics::to_bf16(sum).bits}; });
      break;
    default: add_up<float, float>(round, out, count, same, same);
  }
}

bool same_call(const FakePart& a, const FakePart& b) {
  return a.operation == b.operation && a.count == b.count && a.type == b.type && a.root == b.root;
}

}  // namespace

bool fake_nccl_complete(FakeRound& round) {
  const FakePart& first = *round.parts[0];
  for (const auto& part : round.parts)
    if (!same_call(first, *part)) return false;
  const std::size_t ranks = round.parts.size();
  const std::size_t bytes = first.count * fake_nccl_size(first.type);
  const bool every = first.operation == FakeOperation::kReduceScatter ||
                     first.operation == FakeOperation::kAllGather;
  round.result.resize(every ? ranks * bytes : bytes);
  switch (first.operation) {
    case FakeOperation::kAllReduce:
      sum_all(round, round.result.data(), first.count, first.type);
      break;
    case FakeOperation::kReduceScatter:
      sum_all(round, round.result.data(), ranks * first.count, first.type);
      break;
    case FakeOperation::kAllGather:
      for (std::size_t r = 0; r < ranks; ++r)
        std::memcpy(round.result.data() + r * bytes, round.parts[r]->send, bytes);
      break;
    case FakeOperation::kBroadcast:
      std::memcpy(round.result.data(), round.parts[static_cast<std::size_t>(first.root)]->send,
                  bytes);
      break;
  }
  return true;
}

void fake_nccl_deliver(const FakeRound& round, int rank) {
  const FakePart& part = *round.parts[static_cast<std::size_t>(rank)];
  const std::size_t bytes = part.count * fake_nccl_size(part.type);
  if (part.operation == FakeOperation::kReduceScatter) {
    std::memcpy(part.receive, round.result.data() + static_cast<std::size_t>(rank) * bytes, bytes);
  } else {
    std::memcpy(part.receive, round.result.data(), round.result.size());
  }
  const bool spoilt = part.operation == FakeOperation::kAllReduce &&
                      rank == fake_nccl->options.spoils && part.count > 0;
  if (spoilt) {
    // In the exponent: nothing stays what it is.
    static_cast<std::byte*>(part.receive)[fake_nccl_size(part.type) - 1] ^= std::byte{0x40};
  }
}

namespace {

const char* operation_name(FakeOperation operation) {
  switch (operation) {
    case FakeOperation::kAllReduce: return "all_reduce ";
    case FakeOperation::kReduceScatter: return "reduce_scatter ";
    case FakeOperation::kAllGather: return "all_gather ";
    case FakeOperation::kBroadcast: return "broadcast ";
  }
  return "?";
}

// Whether a rank's part can run: it has come to it by asking, and then all must have.
bool arrive(FakeComm& comm, std::uint64_t index, FakeRound& round, const FakePart& part,
            const std::string& begins) {
  auto& own = round.parts[static_cast<std::size_t>(comm.rank)];
  if (comm.aborted) return true;
  NcclFiles* const files = fake_nccl->files.get();
  const FakeClique& clique = *comm.clique;
  if (!own) {
    own = part;
    ++round.arrived;
    fake_driver->ran.push_back(begins);
    if (files != nullptr) files->put(clique.id, index, comm.rank, clique.size, part);
    const bool all = round.arrived == round.parts.size() && !comm.clique->broken;
    if (all && fake_nccl_complete(round)) {
      round.done = true;
      fake_driver->changed.notify_all();
    }
  }
  if (files != nullptr && !round.done && files->fetch(clique.id, index, round)) {
    round.done = fake_nccl_complete(round);
  }
  return round.done;
}

void queue(const std::shared_ptr<FakeComm>& comm, const FakePart& part, CuStream stream) {
  const auto index = static_cast<std::uint64_t>(comm->calls);
  std::shared_ptr<FakeRound>& round = comm->clique->rounds[index];
  if (round == nullptr) {
    round = std::make_shared<FakeRound>();
    round->parts.resize(static_cast<std::size_t>(comm->clique->size));
  }
  Operation operation;
  operation.name = operation_name(part.operation) + std::to_string(part.count);
  const std::string begins =
      "s" + std::to_string(stream->number) + " " + operation.name + " begins";
  const bool fails = comm->error != kNcclSuccess;
  operation.ready = [comm, index, round, part, begins, fails] {
    return fails ? comm->aborted : arrive(*comm, index, *round, part, begins);
  };
  operation.run = [comm, index, round] {
    if (round->done) fake_nccl_deliver(*round, comm->rank);
    // Between processes this one is the only rank here.
    const std::size_t here = fake_nccl->files ? 1 : round->parts.size();
    const Lock lock(fake_driver->mutex);  // what runs, runs without it
    if (++round->delivered == here) comm->clique->rounds.erase(index);
  };
  // Queueing may run things at once, and lets go of the lock for it.
  stream->queue.push_back(std::move(operation));
}

NcclResult collective(const FakePart& part, NcclComm handle, CuStream stream,
                      std::size_t send_count, std::size_t receive_count) {
  Lock lock(fake_driver->mutex);
  const std::shared_ptr<FakeComm> comm = handle->comm;
  MUSTER_CHECK(!comm->sealed);
  const auto held = fake_nccl->calls_held.find(comm->rank);
  if (held != fake_nccl->calls_held.end()) {
    comm->entered = true;
    fake_nccl->wait_while(lock, held->second);
    comm->entered = false;
  }
  const bool mid = !comm->ready || comm->polls > 0 || comm->launch || comm->finalized;
  const std::size_t unit = fake_nccl_size(part.type);
  if (comm->error != kNcclSuccess) return comm->error;
  if (mid || unit == 0 || !fake_driver->streams.contains(stream) ||
      stream->device != comm->device) {
    return kNcclInvalidArgument;
  }
  for (const auto& [memory, count] : {std::pair<const void*, std::size_t>{part.send, send_count},
                                      {part.receive, receive_count}}) {
    const Allocation* holder = fake_driver->holds(memory, count * unit);
    if (holder == nullptr || holder->device != comm->device) return kNcclInvalidArgument;
  }
  ++comm->calls;
  const auto failure = fake_nccl->failures.find({comm->rank, comm->calls});
  if (failure != fake_nccl->failures.end()) {
    comm->error = failure->second;
    queue(comm, part, stream);
    return kNcclSuccess;
  }
  const NcclResult result =
      fake_nccl->start(*comm, [comm, part, stream] { queue(comm, part, stream); });
  return result;
}

NcclResult all_reduce(const void* send, void* receive, std::size_t count, int type, int sum,
                      NcclComm comm, CuStream stream) {
  if (sum != kNcclSum) return kNcclInvalidArgument;
  return collective({FakeOperation::kAllReduce, send, receive, count, type, 0}, comm, stream, count,
                    count);
}
NcclResult reduce_scatter(const void* send, void* receive, std::size_t count, int type, int sum,
                          NcclComm comm, CuStream stream) {
  if (sum != kNcclSum) return kNcclInvalidArgument;
  const auto ranks = static_cast<std::size_t>(comm->comm->clique->size);
  return collective({FakeOperation::kReduceScatter, send, receive, count, type, 0}, comm, stream,
                    count * ranks, count);
}
NcclResult all_gather(const void* send, void* receive, std::size_t count, int type, NcclComm comm,
                      CuStream stream) {
  const auto ranks = static_cast<std::size_t>(comm->comm->clique->size);
  return collective({FakeOperation::kAllGather, send, receive, count, type, 0}, comm, stream, count,
                    count * ranks);
}
NcclResult broadcast(const void* send, void* receive, std::size_t count, int type, int root,
                     NcclComm comm, CuStream stream) {
  if (root < 0 || root >= comm->comm->clique->size) return kNcclInvalidArgument;
  return collective({FakeOperation::kBroadcast, send, receive, count, type, root}, comm, stream,
                    count, count);
}

}  // namespace

void add_nccl_collectives(NcclApi& api) {
  api.ncclAllReduce = all_reduce;
  api.ncclReduceScatter = reduce_scatter;
  api.ncclAllGather = all_gather;
  api.ncclBroadcast = broadcast;
}

}  // namespace muster::runtime::cuda
