// SPDX-License-Identifier: Apache-2.0
//
// Communicators: ids, initialisation, progress, errors, abort.
#include "tests/support/fake_cuda/nccl.h"

#include <cstring>
#include <limits>
#include <unistd.h>
#include <utility>

#include "proto/base/check.h"
#include "tests/support/fake_cuda/nccl_files.h"

namespace muster::runtime::cuda {

FakeNccl::State* fake_nccl = nullptr;

FakeNccl::State::State(Options given) : options(std::move(given)) {
  if (!options.directory.empty()) files = std::make_unique<NcclFiles>(options.directory);
}
FakeNccl::State::~State() = default;

void FakeNccl::State::wait_while(Lock& lock, const bool& held) {
  fake_driver->changed.wait(lock, [&held] { return !held; });
}

// As a non-blocking call: at once, or after some questions.
NcclResult FakeNccl::State::start(FakeComm& comm, std::function<void()> launch) {
  const bool never = never_launched.contains({comm.rank, comm.calls});
  if (options.launch_polls == 0 && !never) {
    launch();
    return kNcclSuccess;
  }
  comm.polls = never ? std::numeric_limits<int>::max() : options.launch_polls;
  comm.launch = std::move(launch);
  return kNcclInProgress;
}

namespace {

NcclResult version(int* out) {
  *out = fake_nccl->options.version;
  return kNcclSuccess;
}

const char* error_string(NcclResult result) {
  switch (result) {
    case kNcclSuccess: return "no error";
    case kNcclCudaError: return "unhandled cuda error";
    case kNcclSystemError: return "unhandled system error";
    case kNcclInternalError: return "internal error";
    case kNcclInvalidArgument: return "invalid argument";
    case kNcclInvalidUsage: return "invalid usage";
    case kNcclRemoteError: return "remote process exited or there was a network error";
    case kNcclInProgress: return "NCCL operation in progress";
    default: return nullptr;
  }
}

const char* last_error(NcclComm comm) {
  const Lock lock(fake_driver->mutex);
  const bool refused = comm != nullptr && comm->comm->clique && comm->comm->clique->refused;
  return refused ? "Duplicate GPU detected\n" : "";
}

NcclResult unique_id(NcclId* id) {
  const Lock lock(fake_driver->mutex);
  std::memset(id->bytes, 0, sizeof(id->bytes));
  const std::string name =
      "id-" + std::to_string(::getpid()) + "-" + std::to_string(++fake_nccl->ids);
  std::memcpy(id->bytes, name.data(), name.size());
  fake_nccl->cliques[std::string(id->bytes, sizeof(id->bytes))] = std::make_shared<FakeClique>();
  return kNcclSuccess;
}

// Of an id of this process; between processes of any.
std::shared_ptr<FakeClique> clique_of(const NcclId& id) {
  std::shared_ptr<FakeClique>& clique = fake_nccl->cliques[std::string(id.bytes, sizeof(id.bytes))];
  if (clique == nullptr && fake_nccl->files) clique = std::make_shared<FakeClique>();
  return clique;
}

bool good_config(const NcclConfig* config) {
  return config->magic == kNcclConfigMagic && config->size <= sizeof(NcclConfig) &&
         config->version != 0 && config->blocking == 0;
}

NcclResult init(NcclComm* out, int size, NcclId id, int rank, NcclConfig* config) {
  Lock lock(fake_driver->mutex);
  fake_nccl->wait_while(lock, fake_nccl->inits_held[rank]);
  const std::shared_ptr<FakeClique> found = clique_of(id);
  if (!good_config(config) || rank < 0 || rank >= size || fake_context == nullptr) {
    return kNcclInvalidArgument;
  }
  if (found == nullptr) return kNcclInvalidUsage;
  FakeClique& clique = *found;
  clique.id = id.bytes;
  if (clique.size == 0) {
    clique.size = size;
    clique.members.resize(static_cast<std::size_t>(size));
  }
  FakeComm*& place = clique.members[static_cast<std::size_t>(rank)];
  if (clique.size != size || place != nullptr) return kNcclInvalidUsage;  // an id used twice
  auto comm = std::make_shared<FakeComm>();
  comm->clique = found;
  comm->rank = rank;
  comm->device = fake_context->device;
  comm->polls = fake_nccl->options.initial_polls;
  for (const FakeComm* other : clique.members)
    if (other != nullptr && other->device == comm->device) clique.refused = true;
  place = comm.get();
  ++clique.joined;
  ++fake_nccl->alive;
  if (fake_nccl->files && !fake_nccl->never_ready.contains(rank)) {
    fake_nccl->files->join(clique.id, rank);
  }
  *out = new ncclComm{comm};
  return kNcclInProgress;
}

NcclResult init_scalable(NcclComm* out, int size, int rank, int count, NcclId* ids,
                         NcclConfig* config) {
  {
    const Lock lock(fake_driver->mutex);
    fake_nccl->scalable_ids = count;
    for (int i = 0; i < count; ++i)
      if (clique_of(ids[i]) == nullptr) return kNcclInvalidUsage;
  }
  return init(out, size, ids[0], rank, config);
}

bool everybody_can(const FakeClique& clique) {
  if (fake_nccl->files) return fake_nccl->files->all_joined(clique.id, clique.size);
  if (clique.joined < static_cast<std::size_t>(clique.size)) return false;
  for (const FakeComm* member : clique.members)
    if (member != nullptr && fake_nccl->never_ready.contains(member->rank)) return false;
  return true;
}

NcclResult async_error(NcclComm handle, NcclResult* out) {
  const Lock lock(fake_driver->mutex);
  FakeComm& comm = *handle->comm;
  MUSTER_CHECK(!comm.sealed);
  *out = comm.error;
  if (comm.error != kNcclSuccess) return kNcclSuccess;
  if (!comm.ready && comm.clique->refused) {
    *out = comm.error = kNcclInvalidUsage;
    return kNcclSuccess;
  }
  const bool waits = comm.polls > 0 || (!comm.ready && !everybody_can(*comm.clique));
  if (comm.polls > 0) --comm.polls;
  if (waits) {
    *out = kNcclInProgress;
    return kNcclSuccess;
  }
  comm.ready = true;
  if (comm.launch) std::exchange(comm.launch, nullptr)();
  return kNcclSuccess;
}

NcclResult finalize(NcclComm handle) {
  const Lock lock(fake_driver->mutex);
  FakeComm& comm = *handle->comm;
  MUSTER_CHECK(!comm.sealed);
  if (!comm.ready || comm.polls > 0 || comm.finalized) return kNcclInvalidArgument;
  return fake_nccl->start(comm, [&comm] { comm.finalized = true; });
}

void leave(FakeComm& comm) {
  comm.sealed = true;
  comm.aborted = true;
  comm.launch = nullptr;  // holds on to the communicator
  comm.clique->members[static_cast<std::size_t>(comm.rank)] = nullptr;
  --fake_nccl->alive;
  fake_driver->changed.notify_all();
}

NcclResult destroy(NcclComm handle) {
  Lock lock(fake_driver->mutex);
  MUSTER_CHECK(!handle->comm->sealed);
  MUSTER_CHECK(handle->comm->finalized);
  fake_nccl->wait_while(lock, fake_nccl->destroys_held[handle->comm->rank]);
  leave(*handle->comm);
  delete handle;
  return kNcclSuccess;
}

NcclResult abort(NcclComm handle) {
  Lock lock(fake_driver->mutex);
  MUSTER_CHECK(!handle->comm->sealed);
  MUSTER_CHECK(!handle->comm->entered);
  handle->comm->sealed = true;
  ++fake_nccl->aborts;
  fake_driver->changed.notify_all();
  fake_nccl->wait_while(lock, fake_nccl->aborts_held);
  handle->comm->clique->broken = true;
  leave(*handle->comm);
  delete handle;
  return kNcclSuccess;
}

}  // namespace

FakeNccl::FakeNccl(Options options) : state_(std::make_unique<State>(std::move(options))) {
  MUSTER_CHECK(fake_nccl == nullptr);
  MUSTER_CHECK(fake_driver != nullptr);
  fake_nccl = state_.get();
}

FakeNccl::~FakeNccl() {
  fake_nccl = nullptr;
}

NcclApi FakeNccl::api() const {
  NcclApi api;
  api.library = "fake";
  api.version = state_->options.version;
  api.ncclGetVersion = version;
  api.ncclGetErrorString = error_string;
  api.ncclGetLastError = last_error;
  api.ncclGetUniqueId = unique_id;
  api.ncclCommInitRankConfig = init;
  if (api.version >= kNcclScalable) api.ncclCommInitRankScalable = init_scalable;
  api.ncclCommGetAsyncError = async_error;
  api.ncclCommFinalize = finalize;
  api.ncclCommDestroy = destroy;
  api.ncclCommAbort = abort;
  add_nccl_collectives(api);
  return api;
}

void FakeNccl::fail_at(int rank, int nth, NcclResult error) {
  const Lock lock(fake_driver->mutex);
  state_->failures[{rank, nth}] = error;
}

void FakeNccl::never_launch(int rank, int nth) {
  const Lock lock(fake_driver->mutex);
  state_->never_launched[{rank, nth}] = true;
}

void FakeNccl::never_ready(int rank) {
  const Lock lock(fake_driver->mutex);
  state_->never_ready[rank] = true;
}

void FakeNccl::hold_calls(int rank) {
  const Lock lock(fake_driver->mutex);
  state_->calls_held[rank] = true;
}

void FakeNccl::hold_init(int rank) {
  const Lock lock(fake_driver->mutex);
  state_->inits_held[rank] = true;
}

void FakeNccl::hold_destroy(int rank) {
  const Lock lock(fake_driver->mutex);
  state_->destroys_held[rank] = true;
}

void FakeNccl::hold_aborts() {
  const Lock lock(fake_driver->mutex);
  state_->aborts_held = true;
}

void FakeNccl::release() {
  const Lock lock(fake_driver->mutex);
  state_->aborts_held = false;
  for (auto* calls : {&state_->calls_held, &state_->inits_held, &state_->destroys_held}) {
    for (auto& [rank, held] : *calls)
      held = false;
  }
  fake_driver->changed.notify_all();
}

void FakeNccl::wait_for_aborts(std::size_t count) {
  Lock lock(fake_driver->mutex);
  fake_driver->changed.wait(lock, [&] { return state_->aborts >= count; });
}

std::size_t FakeNccl::alive() const {
  const Lock lock(fake_driver->mutex);
  return state_->alive;
}

std::size_t FakeNccl::aborts() const {
  const Lock lock(fake_driver->mutex);
  return state_->aborts;
}

int FakeNccl::scalable_ids() const {
  const Lock lock(fake_driver->mutex);
  return state_->scalable_ids;
}

}  // namespace muster::runtime::cuda
