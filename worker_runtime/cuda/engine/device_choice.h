// SPDX-License-Identifier: Apache-2.0
//
// What ranks compute on and how what they add travels, decided from what every rank says of itself,
// so that all ranks decide alike.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "worker_runtime/cuda/compatibility.h"
#include "worker_runtime/cuda/nccl_settings.h"
#include "worker_runtime/train/config.h"

namespace muster::runtime::cuda {

// Of one rank.
struct DeviceReport {
  std::string why_not;       // empty: it has a device that this build can use
  std::string why_not_nccl;  // empty: it has an NCCL that will do
  std::string libraries;     // versions, for people
  RankFacts facts;           // of its device
  // What NCCL will read there besides our configuration; where it has an NCCL.
  std::vector<NcclSetting> settings;
  bool operator==(const DeviceReport&) const = default;
};

// One line of JSON, and back. kFailedPrecondition: not one of this build's.
std::string report_line(const DeviceReport& report);
absl::StatusOr<DeviceReport> read_report_line(const std::string& line);

// What was asked for, and the name under which people do.
struct DeviceWish {
  DeviceChoice device = DeviceChoice::kAuto;
  std::string backend = "auto";  // auto, nccl, staged, tcp
  bool deterministic = false;    // the host adds
  std::string backend_name = "parallel.backend";
  std::string why_not;  // what is to be computed cannot be on any device; empty: it can
};
DeviceWish wish_of(const TrainConfig& config);

enum class DeviceBackend : std::uint8_t {
  kAlone,  // one rank, or the host adds (parallel.deterministic)
  kNccl,
  kStaged
};

struct DeviceDecision {
  bool on_device = false;
  DeviceBackend backend = DeviceBackend::kAlone;
  std::vector<std::string> notes;  // for people: the choice, and what explains it
};

// Reports by rank. kInternal: what was asked for cannot be had, or the ranks are unlike; the line
// names the rank, why, and what to do.
absl::StatusOr<DeviceDecision> decide_device(const DeviceWish& wish,
                                             const std::vector<DeviceReport>& reports);

}  // namespace muster::runtime::cuda
