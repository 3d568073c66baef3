// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/collectives/local.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include <absl/strings/str_cat.h>

#include "proto/base/check.h"
#include "worker_runtime/collectives/header.h"

namespace muster::runtime {

// One mailbox for each ordered pair. A sender returns only when its mail was taken, so a mailbox
// is empty when the next operation starts.
struct LocalGroup::State {
  struct Mailbox {
    bool full = false;
    OperationHeader header;
    std::span<const std::byte> data;
  };

  int size = 0;
  std::int64_t generation = 0;
  std::chrono::milliseconds deadline{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Mailbox> mailboxes;  // [source * size + destination]
  std::vector<bool> gone;

  Mailbox& mailbox(int source, int destination) {
    return mailboxes[static_cast<std::size_t>(source * size + destination)];
  }
  bool is_gone(int rank) const { return gone[static_cast<std::size_t>(rank)]; }
};

class LocalMember : public Collectives {
 public:
  LocalMember(LocalGroup::State* state, int rank) : state_(state), rank_(rank) {}
  // A rank that leaves is gone for those who still wait for it.
  ~LocalMember() override { leave(); }
  LocalMember(const LocalMember&) = delete;
  LocalMember& operator=(const LocalMember&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return state_->size; }
  std::int64_t generation() const override { return state_->generation; }
  int lost_peer() const override { return lost_peer_; }

  absl::Status exchange(const OperationKey& key, std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> recv) override {
    MUSTER_CHECK(send.size() == static_cast<std::size_t>(size()));
    MUSTER_CHECK(recv.size() == send.size());
    if (!poisoned_.ok()) return poisoned_;
    absl::Status status = exchange_once(key, send, recv);
    if (!status.ok()) {
      poisoned_ = status;
      leave();
    }
    return status;
  }

 private:
  using Clock = std::chrono::steady_clock;

  OperationHeader header_for(const OperationKey& key, int peer,
                             std::span<const std::span<const std::byte>> send,
                             std::span<const std::span<std::byte>> recv) const {
    const auto index = static_cast<std::size_t>(peer);
    return make_header(key, state_->generation, sequence_, send[index].size(), recv[index].size());
  }

  absl::Status exchange_once(const OperationKey& key,
                             std::span<const std::span<const std::byte>> send,
                             std::span<const std::span<std::byte>> recv) {
    const Clock::time_point deadline = Clock::now() + state_->deadline;
    std::unique_lock lock(state_->mutex);
    if (state_->is_gone(rank_)) return absl::UnavailableError("this rank was taken out");
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      state_->mailbox(rank_, peer) = {true, header_for(key, peer, send, recv),
                                      send[static_cast<std::size_t>(peer)]};
    }
    state_->changed.notify_all();

    // Compare with everybody before copying from anybody: a mismatch then wins over a peer that
    // has already left because of it.
    absl::Status verdict;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      absl::Status status = wait_for_mail(lock, deadline, peer);
      if (status.ok()) {
        status = compare(header_for(key, peer, send, recv), state_->mailbox(peer, rank_).header,
                         rank_, peer);
      }
      if (absl::IsFailedPrecondition(status) || verdict.ok()) verdict.Update(status);
      if (absl::IsFailedPrecondition(status)) verdict = status;
    }
    if (!verdict.ok()) return verdict;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      LocalGroup::State::Mailbox& box = state_->mailbox(peer, rank_);
      const std::span<std::byte> into = recv[static_cast<std::size_t>(peer)];
      // A peer that failed between the two passes has taken its payload back.
      if (!box.full || box.data.size() != into.size()) return gone_error(peer);
      if (!into.empty()) std::memcpy(into.data(), box.data.data(), into.size());
      box.full = false;
    }
    state_->changed.notify_all();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      const absl::Status status = wait_until_taken(lock, deadline, peer);
      if (!status.ok()) return status;
    }
    ++sequence_;
    return absl::OkStatus();
  }

  absl::Status wait_for_mail(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                             int peer) {
    const bool in_time = state_->changed.wait_until(lock, deadline, [&] {
      return state_->mailbox(peer, rank_).full || state_->is_gone(peer) || state_->is_gone(rank_);
    });
    if (state_->is_gone(rank_)) return absl::UnavailableError("this rank was taken out");
    if (state_->mailbox(peer, rank_).full) return absl::OkStatus();
    return in_time ? gone_error(peer) : late_error(peer);
  }

  absl::Status wait_until_taken(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                                int peer) {
    const bool in_time = state_->changed.wait_until(lock, deadline, [&] {
      return !state_->mailbox(rank_, peer).full || state_->is_gone(peer);
    });
    if (!state_->mailbox(rank_, peer).full) return absl::OkStatus();
    return in_time ? gone_error(peer) : late_error(peer);
  }

  absl::Status gone_error(int peer) {
    if (lost_peer_ < 0 || peer < lost_peer_) lost_peer_ = peer;
    return absl::UnavailableError(absl::StrCat("rank ", peer, " is gone (seen by rank ", rank_,
                                               " at sequence ", sequence_, ")"));
  }

  absl::Status late_error(int peer) const {
    return absl::DeadlineExceededError(absl::StrCat("rank ", peer, " did not take part within ",
                                                    state_->deadline.count(), " ms (seen by rank ",
                                                    rank_, " at sequence ", sequence_, ")"));
  }

  // Takes this rank's mail back, so that nobody reads memory of a thread that has gone on.
  void leave() {
    const std::lock_guard lock(state_->mutex);
    state_->gone[static_cast<std::size_t>(rank_)] = true;
    if (!absl::IsFailedPrecondition(poisoned_)) {
      for (int peer = 0; peer < size(); ++peer)
        state_->mailbox(rank_, peer).full = false;
    } else {
      // The header stays for the peers to see the mismatch too; the payload does not.
      for (int peer = 0; peer < size(); ++peer)
        state_->mailbox(rank_, peer).data = {};
    }
    state_->changed.notify_all();
  }

  LocalGroup::State* state_;
  int rank_;
  std::uint64_t sequence_ = 0;
  int lost_peer_ = -1;
  absl::Status poisoned_;
};

LocalGroup::LocalGroup(int size, std::int64_t generation, std::chrono::milliseconds deadline)
    : state_(std::make_unique<State>()) {
  MUSTER_CHECK(size > 0);
  state_->size = size;
  state_->generation = generation;
  state_->deadline = deadline;
  state_->mailboxes.resize(static_cast<std::size_t>(size) * static_cast<std::size_t>(size));
  state_->gone.resize(static_cast<std::size_t>(size));
}

LocalGroup::~LocalGroup() = default;

std::unique_ptr<Collectives> LocalGroup::member(int rank) {
  MUSTER_CHECK(rank >= 0 && rank < state_->size);
  return std::make_unique<LocalMember>(state_.get(), rank);
}

void LocalGroup::lose(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->gone[static_cast<std::size_t>(rank)] = true;
  state_->changed.notify_all();
}

}  // namespace muster::runtime
