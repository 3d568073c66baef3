// SPDX-License-Identifier: Apache-2.0
//
// Whether the memory that ended workers had on this node's GPUs is free again. A process is gone
// before its driver has given all of its memory back: the next workers would find a full device.
// Pure: what the devices say comes in, a verdict goes out.
//
// What can be told. The driver names the processes on a device by the host's numbers; in a
// container they are others than ours, or missing, and a worker that is a shell has its device's
// process below it. So a pid that is listed proves that we must wait, but one that is not proves
// nothing; then memory decides: a device is waited for while its memory in use falls. A device
// that stays full while nothing falls is in use by somebody else, and no reason to wait.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/time.h"

namespace muster::agent {

// One device, now.
struct DeviceUse {
  std::string name;  // for messages: "GPU 3"
  std::uint64_t used_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::vector<std::int64_t> pids;  // processes that compute on it
};

class DeviceMemory {
 public:
  // How often to look, and how long memory must stay as it is to count as somebody else's.
  static constexpr Duration kLookEvery = 50ms;
  static constexpr Duration kStill = 300ms;

  // `pids`: of the workers that are gone; `patience`: after that long it is over in any case.
  DeviceMemory(std::vector<std::int64_t> pids, Duration patience)
      : pids_(std::move(pids)), patience_(patience) {}

  struct Verdict {
    bool over = false;
    std::string holder;  // over, but not free: "pid 4711 still holds 40.1 GiB of GPU 3"
  };
  // `elapsed`: since the workers are gone; never less than at the last look.
  Verdict look(const std::vector<DeviceUse>& devices, Duration elapsed);

 private:
  std::vector<std::int64_t> pids_;
  Duration patience_;
  std::map<std::string, std::uint64_t> used_;  // by device, at the last look
  std::optional<Duration> still_since_;        // no device was seen to fall since
};

// The entries of CUDA_VISIBLE_DEVICES as the driver reads them, of `present` devices: up to the
// first that is no device; none where one is there twice. nullopt mask: "0", "1", ….
std::vector<std::string> visible_devices(const std::optional<std::string>& mask, unsigned present);

}  // namespace muster::agent
