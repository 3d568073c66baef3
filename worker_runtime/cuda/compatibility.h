// SPDX-License-Identifier: Apache-2.0
//
// Whether the devices and libraries of all ranks fit together, before NCCL is asked: its own answer
// to most of what is refused here is a hang, or an error that names no rank.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::runtime::cuda {

// What one rank says of itself.
struct RankFacts {
  std::string host;        // host name and boot id: equal means the same machine
  std::string device;      // "NVIDIA H100 80GB HBM3"
  std::string uuid;        // "GPU-…"
  std::string pci_bus;     // "0000:1b:00.0"
  int capability = 0;      // 90 for 9.0
  int driver = 0;          // 580 for 580.65.06; 0: not known
  int driver_cuda = 0;     // 13000 for CUDA 13.0, as cuDriverGetVersion says; 0: there is none
  int libraries_cuda = 0;  // that the CUDA libraries are made for; 0: not known
  int nccl = 0;            // 22809 for 2.28.9

  bool operator==(const RankFacts&) const = default;
};

// One line, and back. kFailedPrecondition: not one of this build's.
std::string facts_line(const RankFacts& facts);
absl::StatusOr<RankFacts> read_facts_line(const std::string& line);

// OK, or kFailedPrecondition with one line: what does not fit, at which rank, what to install.
// Of several misfits the one of the lowest rank.
absl::Status check_rank(const RankFacts& facts, int rank);
// The same over all ranks, in rank order: each by itself, NCCL's version equal to rank 0's, no two
// ranks on one device (MIG instances of it are devices of their own).
absl::Status check_ranks(const std::vector<RankFacts>& facts);

// The driver's own version, from the first line of /proc/driver/nvidia/version: 580 of
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun …", and of the open module's
// "… Open Kernel Module for x86_64  580.65.06  Release Build …". 0: not known.
int driver_branch(const std::string& line);

}  // namespace muster::runtime::cuda
