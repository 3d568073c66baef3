// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/communicator_core.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "proto/base/check.h"
#include "proto/base/rng.h"

namespace muster::runtime::cuda {
namespace {

using State = CommunicatorState;
using Action = CommunicatorAction;

// As in worker_runtime/train (contracts: exit codes of a worker).
constexpr int kInternal = 70;
constexpr int kPeerLost = 81;
constexpr int kMismatch = 82;
constexpr int kDeadline = 83;
constexpr int kDevice = 85;

int exit_code_of(NcclResult result) {
  switch (result) {
    case kNcclCudaError: return kDevice;
    case kNcclRemoteError:
    case kNcclSystemError: return kPeerLost;  // sockets and verbs: the other side is gone
    case kNcclInvalidArgument:
    case kNcclInvalidUsage: return kMismatch;
    default: return kInternal;
  }
}

}  // namespace

std::string cause_line(const FirstCause& cause) {
  return std::to_string(cause.rank) + " " + std::to_string(cause.sequence) + " " +
         std::to_string(cause.end.exit_code) + " " + (cause.end.secondary ? "1" : "0") + " " +
         std::to_string(cause.end.peer) + " " + cause.end.message;
}

absl::StatusOr<FirstCause> read_cause_line(const std::string& line) {
  std::array<std::int64_t, 5> numbers{};
  const char* at = line.data();
  const char* end = at + line.size();
  for (std::int64_t& number : numbers) {
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || stop == end || *stop != ' ') {
      return absl::FailedPreconditionError("the note about the first failure does not read");
    }
    at = stop + 1;
  }
  FirstCause cause;
  cause.rank = static_cast<int>(numbers[0]);
  cause.sequence = static_cast<std::uint64_t>(numbers[1]);
  cause.end = {static_cast<int>(numbers[2]), std::string(at, end), numbers[3] != 0,
               static_cast<int>(numbers[4])};
  return cause;
}

CommunicatorCore::CommunicatorCore(int rank, CommunicatorLimits limits, std::size_t capacity)
    : rank_(rank), limits_(limits), ring_(capacity) {}

void CommunicatorCore::begin(Instant now) {
  MUSTER_CHECK(state_ == State::kCreated);
  state_ = State::kInitialising;
  entered_ = now;
}

std::uint64_t CommunicatorCore::enqueue(NcclOperation operation, int type, std::uint64_t count,
                                        Instant now) {
  MUSTER_CHECK(state_ == State::kReady);
  MUSTER_CHECK(!full());
  ++enqueued_;
  ring_[enqueued_ % ring_.size()] = {enqueued_, operation, type, count, now, false};
  const auto kind = static_cast<std::uint64_t>(operation) << 8U | static_cast<std::uint64_t>(type);
  fingerprint_ = Rng::mix(Rng::mix(fingerprint_ + kind) + count);
  return enqueued_;
}

void CommunicatorCore::launched(std::uint64_t sequence, Instant now) {
  CollectiveRecord& record = ring_[sequence % ring_.size()];
  MUSTER_CHECK(record.sequence == sequence);
  record.launched = true;
  if (sequence == finished_ + 1) progress_ = std::max(progress_, now);
}

void CommunicatorCore::note_progress(const Sight& sight) {
  MUSTER_CHECK(sight.started <= enqueued_ && sight.finished <= sight.started);
  if (sight.started <= started_ && sight.finished <= finished_) return;
  started_ = std::max(started_, sight.started);
  finished_ = std::max(finished_, sight.finished);
  progress_ = sight.now;
}

CommunicatorAction CommunicatorCore::look(const Sight& sight) {
  if (sight.stop && !stop_seen_) stop_seen_ = sight.now;
  switch (state_) {
    case State::kInitialising: return look_initialising(sight);
    case State::kReady: return look_ready(sight);
    case State::kFailed:
      if (!published_ && sight.first && sight.first->rank != rank_) published(sight.first);
      if (published_ || sight.now - entered_ > limits_.publish) return start_abort(sight.now);
      return Action::kNothing;
    case State::kAborting: {
      const Duration yield = adopted_ ? limits_.yield : 0s;
      const Duration passed = sight.now - entered_;
      const bool over = aborted_ ? passed >= yield : passed > yield + limits_.abort;
      if (!over) return Action::kNothing;
      if (!aborted_) {
        end_.message +=
            "; its communicator's abort did not return within " + format_duration(limits_.abort);
      }
      state_ = State::kGone;
      return Action::kExit;
    }
    case State::kCreated:
    case State::kGone: break;
  }
  return Action::kNothing;
}

CommunicatorAction CommunicatorCore::look_initialising(const Sight& sight) {
  if (sight.first && sight.first->rank != rank_) return fail(sight, kPeerLost, "");
  if (sight.result == kNcclSuccess) {
    state_ = State::kReady;
    entered_ = progress_ = sight.now;
    return Action::kReady;
  }
  if (sight.result != kNcclInProgress) return fail_by_result(sight);
  if (sight.now - entered_ > limits_.initialise) {
    return fail(sight, kDeadline,
                "NCCL's communicator was not ready within " + format_duration(limits_.initialise));
  }
  return Action::kNothing;
}

CommunicatorAction CommunicatorCore::look_ready(const Sight& sight) {
  note_progress(sight);
  if (sight.first && sight.first->rank != rank_) return fail(sight, kPeerLost, "");
  if (sight.result != kNcclSuccess && sight.result != kNcclInProgress) return fail_by_result(sight);
  if (finished_ == enqueued_) return look_closing(sight);
  const CollectiveRecord& oldest = record(finished_ + 1);
  const bool computing = oldest.launched && started_ == finished_;
  const Instant since = std::max(oldest.enqueued, progress_);
  if (sight.now - since > limits_.collective) {
    const std::string within = " within " + format_duration(limits_.collective);
    if (computing) {
      return fail(sight, kDevice,
                  "the device did not come to " + record_text(oldest) + within +
                      ": what was queued before it is still running");
    }
    return fail(sight, kDeadline,
                record_text(oldest) + " did not " + (oldest.launched ? "end" : "begin") + within);
  }
  if (stop_seen_ && !computing && sight.now - std::max(since, *stop_seen_) > limits_.stop) {
    return fail(sight, kPeerLost,
                "asked to stop, but no other rank came to " + record_text(oldest));
  }
  return Action::kNothing;
}

CommunicatorAction CommunicatorCore::look_closing(const Sight& sight) {
  if (!closing_since_) return Action::kNothing;
  if (sight.now - *closing_since_ > limits_.collective) {
    return fail(sight, kDeadline,
                "NCCL's communicator was not closed within " + format_duration(limits_.collective));
  }
  const bool alone =
      stop_seen_ && sight.now - std::max(*closing_since_, *stop_seen_) > limits_.stop;
  if (!alone) return Action::kNothing;
  return fail(sight, kPeerLost, "asked to stop, but no other rank came to finalise NCCL");
}

CommunicatorAction CommunicatorCore::fail_by_result(const Sight& sight) {
  std::string reason = "NCCL: " + sight.words;
  if (finished_ < enqueued_) reason += ", at " + record_text(record(finished_ + 1));
  return fail(sight, exit_code_of(sight.result), reason);
}

CommunicatorAction CommunicatorCore::fail(const Sight& sight, int exit_code,
                                          const std::string& reason) {
  state_ = State::kFailed;
  entered_ = sight.now;
  failed_at_ = finished_ < enqueued_ ? finished_ + 1 : 0;
  end_ = {exit_code, reason, exit_code == kPeerLost, -1};
  if (!sight.first || sight.first->rank == rank_) return Action::kPublish;
  published(sight.first);
  return start_abort(sight.now);
}

void CommunicatorCore::published(const std::optional<FirstCause>& first, const Findings& findings) {
  if (state_ != State::kFailed || published_) return;
  published_ = true;
  if (first && first->rank != rank_) {
    adopt(*first);
  } else {
    add(findings);
  }
}

// A collective that does not end, or a connection that does, is explained by where the others are.
void CommunicatorCore::add(const Findings& findings) {
  if (findings.text.empty() || (end_.exit_code != kPeerLost && end_.exit_code != kDeadline)) return;
  end_.message += "; " + findings.text;
  if (end_.exit_code == kDeadline && findings.mismatch) end_.exit_code = kMismatch;
  if (end_.exit_code == kPeerLost) end_.peer = findings.silent;
}

// What went wrong here alone stays the cause of this rank's end.
void CommunicatorCore::adopt(const FirstCause& first) {
  if (end_.exit_code == kDevice || end_.exit_code == kInternal) return;
  adopted_ = true;
  const RankEnd& theirs = first.end;
  end_.exit_code = kPeerLost;
  end_.secondary = true;
  // A rank that was a victim itself is not to blame; it may know who was.
  end_.peer = theirs.secondary ? theirs.peer : first.rank;
  end_.message = "rank " + std::to_string(first.rank) + " failed first: " + theirs.message;
}

CommunicatorAction CommunicatorCore::start_abort(Instant now) {
  published_ = true;
  state_ = State::kAborting;
  entered_ = now;
  return Action::kAbort;
}

void CommunicatorCore::closing(Instant now) {
  closing_since_ = now;
}

void CommunicatorCore::closed() {
  MUSTER_CHECK(state_ == State::kReady);
  state_ = State::kGone;
}

Position CommunicatorCore::position() const {
  return {enqueued_, finished_ < enqueued_ ? record(finished_ + 1) : CollectiveRecord()};
}

FirstCause CommunicatorCore::cause() const {
  return {rank_, failed_at_, end_};
}

}  // namespace muster::runtime::cuda
