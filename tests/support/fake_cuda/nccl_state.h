// SPDX-License-Identifier: Apache-2.0
//
// The inside of the fake NCCL. Everything is guarded by the fake driver's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/nccl.h"
#include "tests/support/fake_cuda/state.h"

namespace muster::runtime::cuda {

enum class FakeOperation : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

// One rank's part in one collective.
struct FakePart {
  FakeOperation operation = FakeOperation::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  int type = 0;
  int root = 0;
};

// One collective of all ranks; parts appear as their streams come to them.
struct FakeRound {
  std::vector<std::optional<FakePart>> parts;
  std::size_t arrived = 0;
  bool done = false;
  std::size_t delivered = 0;
  std::vector<std::byte> result;  // of all ranks, or of each in turn
  std::vector<std::string> sent;  // between processes: what the parts send
};

struct FakeComm;

struct FakeClique {
  int size = 0;
  std::vector<FakeComm*> members;
  std::size_t joined = 0;
  bool refused = false;  // two ranks on one device
  bool broken = false;   // a rank has aborted: nothing completes any more
  std::string id;
  std::map<std::uint64_t, std::shared_ptr<FakeRound>> rounds;
};

struct FakeComm {
  std::shared_ptr<FakeClique> clique;
  int rank = 0;
  int device = 0;
  int polls = 0;                 // left until what is in progress ends
  std::function<void()> launch;  // … and this happens; called with the lock held
  bool ready = false;
  bool sealed = false;   // being aborted, aborted or destroyed
  bool aborted = false;  // its operations may go
  bool finalized = false;
  int calls = 0;
  bool entered = false;  // some thread is inside a call
  NcclResult error = kNcclSuccess;
};

class NcclFiles;

struct FakeNccl::State {
  explicit State(Options given);
  ~State();

  // Waits, without the lock, while `held` is true.
  void wait_while(Lock& lock, const bool& held);
  NcclResult start(FakeComm& comm, std::function<void()> launch);

  Options options;
  std::unique_ptr<NcclFiles> files;  // between processes
  std::uint64_t ids = 0;
  std::map<std::string, std::shared_ptr<FakeClique>> cliques;
  std::map<std::pair<int, int>, NcclResult> failures;  // (rank, nth)
  std::map<std::pair<int, int>, bool> never_launched;  // (rank, nth)
  std::map<int, bool> never_ready;
  std::map<int, bool> calls_held;
  std::map<int, bool> inits_held;
  std::map<int, bool> destroys_held;
  bool aborts_held = false;
  std::size_t alive = 0;
  std::size_t aborts = 0;
  int scalable_ids = 0;
};

extern FakeNccl::State* fake_nccl;

std::size_t fake_nccl_size(int type);
// Fills round.result from the parts of all ranks; false: they do not fit, and never will.
bool fake_nccl_complete(FakeRound& round);
// Rank `rank`'s part of the result into its buffer.
void fake_nccl_deliver(const FakeRound& round, int rank);

void add_nccl_collectives(NcclApi& api);

}  // namespace muster::runtime::cuda

struct ncclComm {
  std::shared_ptr<muster::runtime::cuda::FakeComm> comm;
};
