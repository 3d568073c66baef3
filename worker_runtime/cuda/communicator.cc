// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/base/check.h"

namespace muster::runtime::cuda {
namespace {

using State = CommunicatorState;

// Between two questions whether a call has ended.
constexpr Duration kPoll = 100us;

std::size_t bytes_of(int type) {
  switch (type) {
    case kNcclU8: return 1;
    case kNcclF16:
    case kNcclBf16: return 2;
    case kNcclU64:
    case kNcclF64: return 8;
    default: return 4;
  }
}

// Where rank `rank`'s `count` elements are among those of all ranks.
void* own_part(void* data, std::size_t count, int type, int rank) {
  return static_cast<std::byte*>(data) + static_cast<std::size_t>(rank) * count * bytes_of(type);
}

Instant monotonic_now() {
  return {std::chrono::steady_clock::now().time_since_epoch()};
}

CommunicatorOptions with_defaults(CommunicatorOptions options) {
  if (!options.now) options.now = monotonic_now;
  if (!options.stopping) options.stopping = [] { return false; };
  if (!options.failed) options.failed = [](const RankEnd&) {};
  if (!options.end) options.end = [](const RankEnd&) {};
  return options;
}

}  // namespace

Communicator::Communicator(const NcclApi& api, std::shared_ptr<Device> device,
                           GenerationStore& store, CommunicatorOptions options)
    : api_(api),
      device_(std::move(device)),
      store_(store),
      options_(with_defaults(std::move(options))),
      name_("muster generation " + std::to_string(options_.generation)),
      core_(options_.rank, options_.limits, options_.outstanding) {}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::connect(const NcclApi& api,
                                                                    std::shared_ptr<Device> device,
                                                                    GenerationStore& store,
                                                                    CommunicatorOptions options) {
  const Meeting meeting{options.rank, options.size, options.generation, options.limits.initialise};
  absl::Status fits = compare_ranks(store, meeting, options.facts);
  if (!fits.ok()) return fits;
  const auto ids = share_ids(api, store, meeting);
  if (!ids.ok()) return ids.status();
  std::unique_ptr<Communicator> made(
      new Communicator(api, std::move(device), store, std::move(options)));
  absl::Status ready = made->prepare();
  if (ready.ok()) ready = made->initialise(*ids);
  if (!ready.ok()) return ready;
  return made;
}

absl::Status Communicator::prepare() {
  if (absl::Status used = device_->use(); !used.ok()) return used;
  auto stream = device_->make_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *std::move(stream);
  slots_.resize(options_.outstanding);
  for (Slot& slot : slots_) {
    auto start = device_->make_event();
    auto end = device_->make_event();
    if (!start.ok() || !end.ok()) return start.ok() ? end.status() : start.status();
    slot.start = *std::move(start);
    slot.end = *std::move(end);
  }
  return absl::OkStatus();
}

// The communicator is non-blocking: its making should return at once, and the watchdog polls what
// becomes of it. It is watched from before: NCCL opens sockets in there, and may sit in one.
absl::Status Communicator::initialise(const std::vector<NcclId>& ids) {
  core_.begin(options_.now());
  watchdog_ = std::thread([this] { watch(); });
  listener_ = std::thread([this] { listen(); });
  const NcclResult result = make_communicator(ids);
  if (result != kNcclSuccess && result != kNcclInProgress) return call_failed(result);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return core_.state() == State::kReady || ended_; });
  return status_locked();
}

NcclResult Communicator::make_communicator(const std::vector<NcclId>& ids) {
  NcclConfig config = nccl_config(api_.version, name_.c_str());
  const std::lock_guard inside(calls_);
  if (sealed_) return kNcclInProgress;  // another rank failed meanwhile
  if (ids.size() == 1) {
    return api_.ncclCommInitRankConfig(&comm_, options_.size, ids.front(), options_.rank, &config);
  }
  std::vector<NcclId> copy = ids;
  return api_.ncclCommInitRankScalable(&comm_, options_.size, options_.rank,
                                       static_cast<int>(copy.size()), copy.data(), &config);
}

Communicator::~Communicator() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  stop_threads();
  if (comm_ != nullptr) abort();
}

void Communicator::stop_threads() {
  changed_.notify_all();
  for (std::thread* thread : {&watchdog_, &listener_, &publisher_, &aborter_})
    if (thread->joinable()) thread->join();
}

// ---------------------------------------------------------------- Collectives

absl::StatusOr<std::uint64_t> Communicator::all_reduce(void* data, std::size_t count, int type,
                                                       const Event& ready) {
  return run(NcclOperation::kAllReduce, type, count, ready, [&](NcclComm comm, CuStream stream) {
    return api_.ncclAllReduce(data, data, count, type, kNcclSum, comm, stream);
  });
}

absl::StatusOr<std::uint64_t> Communicator::reduce_scatter(void* data, std::size_t count, int type,
                                                           const Event& ready) {
  return run(NcclOperation::kReduceScatter, type, count, ready,
             [&](NcclComm comm, CuStream stream) {
               return api_.ncclReduceScatter(data, own_part(data, count, type, options_.rank),
                                             count, type, kNcclSum, comm, stream);
             });
}

absl::StatusOr<std::uint64_t> Communicator::all_gather(void* data, std::size_t count, int type,
                                                       const Event& ready) {
  return run(NcclOperation::kAllGather, type, count, ready, [&](NcclComm comm, CuStream stream) {
    return api_.ncclAllGather(own_part(data, count, type, options_.rank), data, count, type, comm,
                              stream);
  });
}

absl::StatusOr<std::uint64_t> Communicator::broadcast(void* data, std::size_t count, int type,
                                                      int root, const Event& ready) {
  return run(NcclOperation::kBroadcast, type, count, ready, [&](NcclComm comm, CuStream stream) {
    return api_.ncclBroadcast(data, data, count, type, root, comm, stream);
  });
}

absl::StatusOr<std::uint64_t> Communicator::run(NcclOperation operation, int type,
                                                std::size_t count, const Event& ready,
                                                const Call& call) {
  auto sequence = reserve(operation, type, count);
  if (!sequence.ok()) return sequence;
  const Slot& slot = slots_[*sequence % slots_.size()];
  absl::Status launched = launch(slot, ready, call);
  if (!launched.ok()) return launched;
  const std::lock_guard lock(mutex_);
  core_.launched(*sequence, options_.now());
  return sequence;
}

// A place among the outstanding ones; waits for the oldest to end where there is none.
absl::StatusOr<std::uint64_t> Communicator::reserve(NcclOperation operation, int type,
                                                    std::size_t count) {
  std::unique_lock lock(mutex_);
  while (core_.state() == State::kReady && core_.full()) {
    changed_.notify_all();  // the watchdog looks
    changed_.wait_for(lock, kPoll);
  }
  if (core_.state() != State::kReady) return status_locked();
  return core_.enqueue(operation, type, count, options_.now());
}

absl::Status Communicator::launch(const Slot& slot, const Event& ready, const Call& call) {
  absl::Status queued = stream_->wait_for(ready);
  if (queued.ok()) queued = stream_->record(*slot.start);
  if (!queued.ok()) return failed_here(kNcclCudaError, std::string(queued.message()));
  // Until the call has ended, the collective is not on the stream: an event recorded now would
  // come before it.
  const std::optional<NcclResult> result = finish_call(call);
  if (!result) return status();
  if (*result != kNcclSuccess) return call_failed(*result);
  queued = stream_->record(*slot.end);
  return queued.ok() ? queued : failed_here(kNcclCudaError, std::string(queued.message()));
}

std::optional<NcclResult> Communicator::finish_call(const Call& call) {
  NcclResult result = kNcclInProgress;
  {
    const std::lock_guard inside(calls_);
    if (sealed_) return std::nullopt;
    result = call(comm_, stream_->handle());
  }
  while (result == kNcclInProgress) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPoll, [this] { return core_.state() != State::kReady; });
    }
    const std::lock_guard inside(calls_);
    if (sealed_) return std::nullopt;
    const NcclResult asked = api_.ncclCommGetAsyncError(comm_, &result);
    if (asked != kNcclSuccess) result = asked;
  }
  return result;
}

absl::Status Communicator::call_failed(NcclResult result) {
  std::string words;
  {
    const std::lock_guard inside(calls_);
    words = nccl_words(api_, result, sealed_ ? nullptr : comm_);
  }
  return failed_here(result, words);
}

// The watchdog carries on from here.
absl::Status Communicator::failed_here(NcclResult result, const std::string& words) {
  std::unique_lock lock(mutex_);
  result_ = result;
  words_ = words;
  changed_.notify_all();
  changed_.wait(lock, [this] { return core_.end().exit_code != 0; });
  return status_locked();
}

absl::Status Communicator::join(Stream& stream, std::uint64_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    absl::Status now = status_locked();
    // A slot is used again only after its collective is known to have ended.
    if (!now.ok() || sequence <= core_.finished()) return now;
  }
  return stream.wait_for(*slots_[sequence % slots_.size()].end);
}

absl::Status Communicator::close() {
  absl::Status quiet = status();
  if (quiet.ok()) quiet = stream_->synchronize();
  if (quiet.ok()) quiet = status();
  if (!quiet.ok()) return quiet;
  {
    const std::lock_guard lock(mutex_);
    core_.closing(options_.now());
  }
  const auto result =
      finish_call([this](NcclComm comm, CuStream) { return api_.ncclCommFinalize(comm); });
  if (!result) return status();
  if (*result != kNcclSuccess) return call_failed(*result);
  if (absl::Status still = status(); !still.ok()) return still;
  const NcclResult gone = destroy();
  {
    const std::lock_guard lock(mutex_);
    if (core_.state() != State::kReady) return status_locked();
    core_.closed();
    closing_ = true;
  }
  stop_threads();
  if (gone == kNcclSuccess) return absl::OkStatus();
  return absl::InternalError("ncclCommDestroy: " + nccl_words(api_, gone, nullptr));
}

// Watched over, as every other call.
NcclResult Communicator::destroy() {
  sealed_ = true;
  const std::lock_guard inside(calls_);
  if (comm_ == nullptr) return kNcclSuccess;  // aborted in this very moment
  return api_.ncclCommDestroy(std::exchange(comm_, nullptr));
}

absl::Status Communicator::status() const {
  const std::lock_guard lock(mutex_);
  return status_locked();
}

absl::Status Communicator::status_locked() const {
  const RankEnd& end = core_.end();
  switch (end.exit_code) {
    case 0: return absl::OkStatus();
    case 81: return absl::UnavailableError(end.message);
    case 82: return absl::FailedPreconditionError(end.message);
    case 83: return absl::DeadlineExceededError(end.message);
    default: return absl::InternalError(end.message);
  }
}

std::uint64_t Communicator::fingerprint() const {
  const std::lock_guard lock(mutex_);
  return core_.fingerprint();
}

RankEnd Communicator::end() const {
  const std::lock_guard lock(mutex_);
  return core_.end();
}

CommunicatorState Communicator::state() const {
  const std::lock_guard lock(mutex_);
  return core_.state();
}

std::vector<CollectiveRecord> Communicator::outstanding() const {
  const std::lock_guard lock(mutex_);
  std::vector<CollectiveRecord> records;
  for (std::uint64_t s = core_.finished() + 1; s <= core_.enqueued(); ++s)
    records.push_back(core_.record(s));
  return records;
}

}  // namespace muster::runtime::cuda
