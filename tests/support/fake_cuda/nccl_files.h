// SPDX-License-Identifier: Apache-2.0
//
// The fake NCCL between processes: who has joined, and each rank's part of each collective, are
// files in one directory that all ranks have. Whoever is gone leaves the others waiting, as with
// the real one.
//
// Thread rule: guarded by the fake driver's mutex.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/fake_cuda/nccl_state.h"

namespace muster::runtime::cuda {

class NcclFiles {
 public:
  explicit NcclFiles(std::string directory) : directory_(std::move(directory)) {}

  void join(const std::string& id, int rank) const;
  bool all_joined(const std::string& id, int size) const;
  void put(const std::string& id, std::uint64_t index, int rank, int size, const FakePart& part);
  // Whether all ranks' parts are there; then they are in the round.
  bool fetch(const std::string& id, std::uint64_t index, FakeRound& round) const;

 private:
  std::string path(const std::string& id, const std::string& name) const;

  std::string directory_;
};

}  // namespace muster::runtime::cuda
