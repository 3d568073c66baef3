// SPDX-License-Identifier: Apache-2.0
//
// --nproc-per-node: how many workers this node runs. Every source of the answer is a file below
// a root that tests replace.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "launcher/commands/options.h"

namespace muster::launcher {

struct NodeProbe {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
  std::string devices = "/dev";
  unsigned affinity = 0;  // processors this process may use; 0: ask the kernel
};

// Workers that `text` (auto, gpu, cpu or a number) stands for.
// Errors, kInvalidArgument: gpu, and none is visible; the message says why.
absl::StatusOr<std::uint32_t> count_slots(const std::string& text,
                                          const EnvironmentMap& environment,
                                          const NodeProbe& probe = {});

// Processors usable here: affinity, and the CPU quota of the control groups above us, rounded up.
unsigned count_cpus(const NodeProbe& probe);

// CUDA_VISIBLE_DEVICES, where it is set.
std::optional<std::string> device_mask(const EnvironmentMap& environment);

// The GPUs that CUDA_VISIBLE_DEVICES leaves of those in /dev, as it names them.
std::vector<std::string> visible_gpus(const EnvironmentMap& environment,
                                      const NodeProbe& probe = {});

// How many these are.
// `reason`: where the answer is 0, why.
unsigned count_gpus(const EnvironmentMap& environment, const NodeProbe& probe, std::string& reason);

}  // namespace muster::launcher
