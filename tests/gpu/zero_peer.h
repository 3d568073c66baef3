// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 of two, the other of which is not there: its gradient is zero, and what it would add is
// copied instead. So a staged exchange on one device does all that it does among ranks, but for
// the network, and leaves the sums as they were.
//
// Thread rule: as collectives.h says.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "proto/base/check.h"
#include "worker_runtime/collectives/collectives.h"

namespace muster::runtime::cuda::gpu_check {

class ZeroPeer : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::int64_t generation() const override { return 0; }
  int lost_peer() const override { return -1; }

  absl::Status exchange(const OperationKey& key, std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> recv) override {
    if (key.operation == Operation::kAllReduce) {
      summed_.emplace_back(send[1].begin(), send[1].end());
      std::fill(recv[1].begin(), recv[1].end(), std::byte{0});
      return absl::OkStatus();
    }
    MUSTER_CHECK(!summed_.empty() && summed_.front().size() == recv[1].size());
    std::copy(summed_.front().begin(), summed_.front().end(), recv[1].begin());
    summed_.pop_front();
    return absl::OkStatus();
  }

 private:
  std::deque<std::vector<std::byte>> summed_;  // slices whose sums are still to be gathered
};

}  // namespace muster::runtime::cuda::gpu_check
