// SPDX-License-Identifier: Apache-2.0
//
// What a rank does about its communicator, decided from what it sees: NCCL's own state, which
// collectives the device has begun and ended, what another rank wrote as the first failure, the
// time. No clock, thread or device in here: the shell (communicator.h) brings the sights and
// carries out the actions.
//
//   created -> initialising -> ready          -> gone (closed in order)
//                    \-----------\-> failed -> aborting -> gone
//
// failed: the reason is being written to the store, so that the others learn the first cause and
// not only that something broke; aborting: NCCL is taking the communicator down, which may hang.
// Both have deadlines of their own, after which the process ends all the same.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "proto/base/time.h"
#include "worker_runtime/cuda/nccl_api.h"
#include "worker_runtime/cuda/positions.h"

namespace muster::runtime::cuda {

enum class CommunicatorState : std::uint8_t {
  kCreated,
  kInitialising,
  kReady,
  kFailed,
  kAborting,
  kGone
};

// How this rank ends; what the worker makes its error file and exit code of.
struct RankEnd {
  int exit_code = 0;
  std::string message;     // one line
  bool secondary = false;  // another rank's end was the cause
  int peer = -1;           // that rank, where known
  bool operator==(const RankEnd&) const = default;
};

// What the first rank to fail leaves in the store.
struct FirstCause {
  int rank = -1;
  std::uint64_t sequence = 0;  // of the collective that it waited for; 0: of none
  RankEnd end;
};
std::string cause_line(const FirstCause& cause);
absl::StatusOr<FirstCause> read_cause_line(const std::string& line);

struct CommunicatorLimits {
  Duration initialise = 5min;
  // From when the device could have begun a collective to its end.
  Duration collective = 5min;
  Duration stop = 2s;     // the same, once the worker was asked to stop
  Duration publish = 2s;  // for the store to take the reason, and the others to say where they are
  Duration abort = 5s;    // for ncclCommAbort to return
  // How long a rank that ends as another's victim lets that one go first. Whoever looks on takes
  // the first to end for the cause, unless the cause follows soon.
  Duration yield = 0s;
};

struct Sight {
  Instant now;
  std::uint64_t started = 0;            // so many collectives the device has begun
  std::uint64_t finished = 0;           // … and ended
  NcclResult result = kNcclInProgress;  // the communicator's own, or that of a call that failed
  std::string words;                    // … what NCCL says of it
  std::optional<FirstCause> first;      // stands in the store
  bool stop = false;                    // asked to stop: wait for peers no longer
};

enum class CommunicatorAction : std::uint8_t {
  kNothing,
  kReady,    // the communicator can be used
  kPublish,  // write cause() and position() to the store, look at the others', then published()
  kAbort,    // end() is settled: abort the communicator, then aborted()
  kExit      // end the process
};

class CommunicatorCore {
 public:
  // At most `capacity` collectives are outstanding.
  CommunicatorCore(int rank, CommunicatorLimits limits, std::size_t capacity);

  CommunicatorState state() const { return state_; }
  void begin(Instant now);  // REQUIRES: created

  // Collectives. REQUIRES: ready, and not full(). Gives the sequence number.
  std::uint64_t enqueue(NcclOperation operation, int type, std::uint64_t count, Instant now);
  void launched(std::uint64_t sequence, Instant now);
  bool full() const { return enqueued_ - finished_ >= ring_.size(); }
  std::uint64_t enqueued() const { return enqueued_; }
  std::uint64_t finished() const { return finished_; }
  // Of all collectives so far, in their order; ranks that agree have the same. NCCL does not check
  // that counts are equal: it may hang, or leave a wrong tail.
  std::uint64_t fingerprint() const { return fingerprint_; }
  const CollectiveRecord& record(std::uint64_t sequence) const {
    return ring_[sequence % ring_.size()];
  }

  // At most one action a call; call again until it is kNothing.
  CommunicatorAction look(const Sight& sight);
  // The store has it, or does not answer; `first`: another rank's reason stood there before; else
  // what this rank found out about the others.
  void published(const std::optional<FirstCause>& first, const Findings& findings = {});
  void aborted() { aborted_ = true; }
  void closing(Instant now);  // NCCL is asked to finalise, which waits for the other ranks
  void closed();              // in order. REQUIRES: ready

  const RankEnd& end() const { return end_; }
  FirstCause cause() const;
  Position position() const;

 private:
  CommunicatorAction look_initialising(const Sight& sight);
  CommunicatorAction look_ready(const Sight& sight);
  CommunicatorAction look_closing(const Sight& sight);
  CommunicatorAction fail(const Sight& sight, int exit_code, const std::string& reason);
  CommunicatorAction fail_by_result(const Sight& sight);
  CommunicatorAction start_abort(Instant now);
  void adopt(const FirstCause& first);
  void add(const Findings& findings);
  void note_progress(const Sight& sight);

  int rank_;
  CommunicatorLimits limits_;
  CommunicatorState state_ = CommunicatorState::kCreated;
  std::vector<CollectiveRecord> ring_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t finished_ = 0;
  Instant entered_;   // into the present state
  Instant progress_;  // the device, or NCCL, came further
  std::optional<Instant> stop_seen_;
  std::optional<Instant> closing_since_;
  bool published_ = false;
  bool adopted_ = false;  // another rank's reason
  bool aborted_ = false;
  std::uint64_t failed_at_ = 0;
  std::uint64_t fingerprint_ = 0;
  RankEnd end_;
};

}  // namespace muster::runtime::cuda
