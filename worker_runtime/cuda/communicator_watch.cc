// SPDX-License-Identifier: Apache-2.0
//
// The communicator's other threads: what they see and how they carry out what the core decides.
#include <algorithm>
#include <chrono>
#include <utility>

#include "worker_runtime/cuda/communicator.h"

namespace muster::runtime::cuda {
namespace {

using State = CommunicatorState;
using Action = CommunicatorAction;

}  // namespace

void Communicator::watch() {
  const absl::Status used = device_->use();
  std::unique_lock lock(mutex_);
  if (!used.ok()) {
    result_ = kNcclCudaError;
    words_ = std::string(used.message());
  }
  while (!may_stop_watching()) {
    look_until_quiet(lock);
    if (!may_stop_watching()) changed_.wait_for(lock, options_.tick);
  }
}

// A failure is carried to its end even if the object is being destroyed.
bool Communicator::may_stop_watching() const {
  const bool failing = core_.state() == State::kFailed || core_.state() == State::kAborting;
  return ended_ || (closing_ && !failing && core_.end().exit_code == 0);
}

void Communicator::look_until_quiet(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    const Action action = core_.look(see());
    if (action == Action::kNothing) return;
    act(action, lock);
  }
}

Sight Communicator::see() {
  if (core_.state() == State::kInitialising || core_.state() == State::kReady) see_nccl();
  if (core_.state() == State::kReady) see_device();
  return {options_.now(), seen_started_, seen_finished_,     result_,
          words_,         first_,        options_.stopping()};
}

void Communicator::see_nccl() {
  const bool failed = result_ != kNcclSuccess && result_ != kNcclInProgress;
  // Busy: the training thread is inside, and will see an error itself. If it never comes back,
  // the deadline tells.
  const std::unique_lock inside(calls_, std::try_to_lock);
  if (failed || !inside.owns_lock() || sealed_ || comm_ == nullptr) return;
  NcclResult now = kNcclSuccess;
  const NcclResult asked = api_.ncclCommGetAsyncError(comm_, &now);
  result_ = asked != kNcclSuccess ? asked : now;
  if (result_ != kNcclSuccess && result_ != kNcclInProgress) {
    words_ = nccl_words(api_, result_, comm_);
  }
}

// In order: a collective cannot have begun before the one before it ended.
void Communicator::see_device() {
  const auto has_run = [this](const Event& event) {
    const absl::StatusOr<bool> done = event.done();
    if (done.ok()) return *done;
    result_ = kNcclCudaError;
    words_ = std::string(done.status().message());
    return false;
  };
  for (std::uint64_t next = seen_finished_ + 1; next <= core_.enqueued(); ++next) {
    const Slot& slot = slots_[next % slots_.size()];
    if (!core_.record(next).launched) break;
    if (seen_started_ < next && !has_run(*slot.start)) break;
    seen_started_ = next;
    if (!has_run(*slot.end)) break;
    seen_finished_ = next;
    changed_.notify_all();
  }
}

void Communicator::act(Action action, std::unique_lock<std::mutex>& lock) {
  switch (action) {
    case Action::kPublish:
      sealed_ = true;
      publisher_ =
          std::thread([this, cause = core_.cause(), at = core_.position()] { publish(cause, at); });
      break;
    case Action::kAbort:
      sealed_ = true;
      if (!publisher_.joinable()) {  // another rank was first: it wants to know
        publisher_ = std::thread([this, at = core_.position()] { tell_position(at); });
      }
      aborter_ = std::thread([this] {
        abort();
        const std::lock_guard inner(mutex_);
        core_.aborted();
        changed_.notify_all();
      });
      break;
    case Action::kExit:
    case Action::kReady:
    case Action::kNothing: break;
  }
  changed_.notify_all();
  const RankEnd end = core_.end();
  if (action == Action::kPublish || action == Action::kAbort) {
    lock.unlock();
    options_.failed(end);
    lock.lock();
  } else if (action == Action::kExit) {
    lock.unlock();
    options_.end(end);
    lock.lock();
    ended_ = true;
    changed_.notify_all();
  }
}

// The first rank to count itself writes the reason; the others read it.
void Communicator::publish(const FirstCause& cause, const Position& position) {
  tell_position(position);
  const std::string key = nccl_key(options_.generation, "failed");
  std::optional<FirstCause> first;
  Findings findings;
  const auto before = store_.add(nccl_key(options_.generation, "failures"), 1);
  if (before.ok() && *before == 1) {
    if (store_.set(key, cause_line(cause)).ok()) findings = find_out(position);
  } else {
    const auto line = store_.get(key, options_.answers);
    if (line.ok()) {
      const auto read = read_cause_line(*line);
      if (read.ok()) first = *read;
    }
  }
  const std::lock_guard lock(mutex_);
  core_.published(first, findings);
  changed_.notify_all();
}

void Communicator::tell_position(const Position& position) {
  (void)store_.set(nccl_key(options_.generation, "at/" + std::to_string(options_.rank)),
                   position_line(position));
}

// The others say where they are as soon as they see that somebody failed.
Findings Communicator::find_out(const Position& position) {
  const auto until = std::chrono::steady_clock::now() + options_.answers;
  std::vector<std::optional<Position>> all;
  for (int rank = 0; rank < options_.size; ++rank) {
    const Duration left = until - std::chrono::steady_clock::now();
    const auto line = store_.get(nccl_key(options_.generation, "at/" + std::to_string(rank)),
                                 std::max(left, Duration(0)));
    const auto read = line.ok() ? read_position_line(*line) : line.status();
    all.push_back(read.ok() ? std::optional(*read) : std::nullopt);
  }
  return compare_positions(options_.rank, position.oldest, all);
}

// Nobody may be inside NCCL: whoever was has left when calls_ can be had, and `sealed_` keeps the
// others out.
void Communicator::abort() {
  sealed_ = true;
  const std::lock_guard inside(calls_);
  if (comm_ == nullptr || !device_->use().ok()) return;
  api_.ncclCommAbort(std::exchange(comm_, nullptr));
}

void Communicator::listen() {
  const std::string key = nccl_key(options_.generation, "failed");
  for (;;) {
    const auto line = store_.get(key, options_.listen);
    const auto cause = line.ok() ? read_cause_line(*line) : line.status();
    std::unique_lock lock(mutex_);
    if (cause.ok()) {
      first_ = *cause;
      changed_.notify_all();
      return;
    }
    if (closing_ || absl::IsAborted(line.status())) return;  // aborted: the generation is over
    // The store is away: it may come back.
    if (!absl::IsNotFound(line.status())) changed_.wait_for(lock, options_.tick);
    if (closing_) return;
  }
}

}  // namespace muster::runtime::cuda
