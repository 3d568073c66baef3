// SPDX-License-Identifier: Apache-2.0
//
// The group as the training loop uses it: every exchange is marked for the overseer, which alone
// can end a process whose peers never answer.
//
// Thread rule: as Collectives.
#pragma once

#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/train/trainer.h"

namespace muster::runtime {

class WatchedCollectives : public Collectives {
 public:
  // Both must outlive the object.
  WatchedCollectives(Collectives& real, Overseer& overseer) : real_(real), overseer_(overseer) {}

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  std::int64_t generation() const override { return real_.generation(); }
  int lost_peer() const override { return real_.lost_peer(); }

  absl::Status exchange(const OperationKey& key, std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> recv) override {
    overseer_.collective_begins();
    absl::Status status = real_.exchange(key, send, recv);
    overseer_.collective_ends();
    return status;
  }

 private:
  Collectives& real_;
  Overseer& overseer_;
};

}  // namespace muster::runtime
