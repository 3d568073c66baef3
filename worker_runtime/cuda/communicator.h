// SPDX-License-Identifier: Apache-2.0
//
// This rank's end of the one NCCL communicator of a generation: one communicator and one stream
// for gradients, so that collectives cannot overtake each other, with a watchdog that ends the
// process when a peer is gone. Decisions are communicator_core.h's; this carries them out.
//
// A collective waits on its own stream for the event that its data is ready, runs beside whatever
// the compute stream does next, and records an event that others wait for (join).
//
// When something fails: `failed` is told (write the error file: the launcher may end us any time
// from here), the reason goes to the store, all ranks say there where they are, `failed` is told
// again if that explains more, the communicator is aborted, `end` ends the process.
// The blocked training thread is not needed for any of it. Where `end` returns (tests), every
// later call gives the failure as a status.
//
// Threads: a watchdog; one that waits for other ranks' failures in the store; after a failure one
// that writes and one that aborts, since either may hang. No two threads are in NCCL at once.
// Thread rule: collectives, join and close from one thread; failed/end come from the watchdog.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker_runtime/cuda/communicator_core.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/nccl_api.h"
#include "worker_runtime/cuda/nccl_meeting.h"

namespace muster::runtime::cuda {

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::int64_t generation = 0;
  CommunicatorLimits limits = {};
  RankFacts facts = {};
  std::size_t outstanding = 256;      // collectives at most
  Duration tick = 100ms;              // between two looks of the watchdog
  Duration listen = 1s;               // one question to the store
  Duration answers = 500ms;           // for the other ranks to say where they are, after a failure
  std::function<Instant()> now = {};  // empty: the monotonic clock
  std::function<bool()> stopping = {};              // asked to stop: wait for peers no longer
  std::function<void(const RankEnd&)> failed = {};  // maybe twice: the second time it knows more
  std::function<void(const RankEnd&)> end = {};     // once
};

class Communicator {
 public:
  // Meets the other ranks and waits until the communicator is ready. Errors of the meeting, which
  // come before NCCL is asked for anything: those of nccl_meeting.h; of a communicator that fails:
  // as status(). The store must outlive the object.
  static absl::StatusOr<std::unique_ptr<Communicator>> connect(const NcclApi& api,
                                                               std::shared_ptr<Device> device,
                                                               GenerationStore& store,
                                                               CommunicatorOptions options);
  // Aborts what was not closed; after a failure waits until `end` has returned.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // What runs once `ready` has; in place. Gives the collective's sequence number, for join. All
  // ranks call the same in the same order, with the same counts.
  absl::StatusOr<std::uint64_t> all_reduce(void* data, std::size_t count, int type,
                                           const Event& ready);
  // Rank r gets elements [r * count, (r + 1) * count) of the sum, in place.
  absl::StatusOr<std::uint64_t> reduce_scatter(void* data, std::size_t count, int type,
                                               const Event& ready);
  // Of the same layout: rank r's `count` elements to all.
  absl::StatusOr<std::uint64_t> all_gather(void* data, std::size_t count, int type,
                                           const Event& ready);
  absl::StatusOr<std::uint64_t> broadcast(void* data, std::size_t count, int type, int root,
                                          const Event& ready);

  // What is queued on `stream` later runs after that collective.
  absl::Status join(Stream& stream, std::uint64_t sequence);
  // After waiting for results and before believing them: an aborted collective leaves garbage.
  // Codes as in collectives.h; kInternal for a device or NCCL itself.
  absl::Status status() const;
  // Waits for what is outstanding and closes in order, together with the other ranks.
  absl::Status close();

  // For the step's control all-reduce (Control::fingerprint): see communicator_core.h.
  std::uint64_t fingerprint() const;
  // exit_code 0: it has not failed.
  RankEnd end() const;
  CommunicatorState state() const;
  // Unfinished collectives, oldest first, for messages.
  std::vector<CollectiveRecord> outstanding() const;

 private:
  struct Slot {
    std::unique_ptr<Event> start, end;
  };
  using Call = std::function<NcclResult(NcclComm, CuStream)>;

  Communicator(const NcclApi& api, std::shared_ptr<Device> device, GenerationStore& store,
               CommunicatorOptions options);
  absl::Status prepare();
  absl::Status initialise(const std::vector<NcclId>& ids);
  NcclResult make_communicator(const std::vector<NcclId>& ids);
  NcclResult destroy();
  absl::StatusOr<std::uint64_t> run(NcclOperation operation, int type, std::size_t count,
                                    const Event& ready, const Call& call);
  absl::StatusOr<std::uint64_t> reserve(NcclOperation operation, int type, std::size_t count);
  absl::Status launch(const Slot& slot, const Event& ready, const Call& call);
  // The call's result, once it is not in progress any more; nullopt: the communicator failed.
  std::optional<NcclResult> finish_call(const Call& call);
  absl::Status call_failed(NcclResult result);
  absl::Status failed_here(NcclResult result, const std::string& words);

  void watch();
  bool may_stop_watching() const;  // with mutex_ held
  void listen();
  void look_until_quiet(std::unique_lock<std::mutex>& lock);
  void act(CommunicatorAction action, std::unique_lock<std::mutex>& lock);
  Sight see();        // with mutex_ held
  void see_device();  // with mutex_ held
  void see_nccl();    // with mutex_ held
  void publish(const FirstCause& cause, const Position& position);
  void tell_position(const Position& position);
  Findings find_out(const Position& position);
  void abort();
  absl::Status status_locked() const;
  void stop_threads();

  const NcclApi api_;
  const std::shared_ptr<Device> device_;
  GenerationStore& store_;
  const CommunicatorOptions options_;
  const std::string name_;
  std::unique_ptr<Stream> stream_;
  std::vector<Slot> slots_;

  std::mutex calls_;                 // held by whoever is inside NCCL; never while waiting
  std::atomic<bool> sealed_{false};  // no more calls: it is being aborted
  NcclComm comm_ = nullptr;          // of calls_

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  CommunicatorCore core_;
  std::uint64_t seen_started_ = 0;
  std::uint64_t seen_finished_ = 0;
  NcclResult result_ = kNcclInProgress;
  std::string words_;
  std::optional<FirstCause> first_;
  bool closing_ = false;  // threads end
  bool ended_ = false;    // `end` has returned
  std::thread watchdog_, listener_, publisher_, aborter_;
};

}  // namespace muster::runtime::cuda
