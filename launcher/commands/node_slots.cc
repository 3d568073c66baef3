// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/node_slots.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sched.h>
#include <sstream>

#include <absl/status/status.h>

#include "agent/core/device_memory.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

unsigned affinity_count() {
  // Machines with more processors than cpu_set_t holds need a larger set.
  for (std::size_t cpus = CPU_SETSIZE; cpus <= (1U << 18U); cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return static_cast<unsigned>(std::max(1, count));
  }
  return 1;
}

// Processors that one directory of the hierarchy allows; nullopt: no limit there.
std::optional<double> quota_at(const std::string& directory) {
  if (const auto line = first_line(directory + "/cpu.max")) {  // version 2
    const std::vector<std::string_view> words = split(*line, ' ');
    if (words.size() != 2) return std::nullopt;
    const auto quota = read_number<long long>(words[0]);
    const auto period = read_number<long long>(words[1]);
    if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }
  const auto quota_line = first_line(directory + "/cpu.cfs_quota_us");  // version 1
  const auto period_line = first_line(directory + "/cpu.cfs_period_us");
  if (!quota_line || !period_line) return std::nullopt;
  const auto quota = read_number<long long>(*quota_line);
  const auto period = read_number<long long>(*period_line);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The tightest quota from our own group up to the root. Inside a container the path of
// /proc/self/cgroup is often not below the mount; then the mount's root is our own group.
std::optional<double> cpu_quota(const NodeProbe& probe) {
  std::optional<double> least;
  const auto take = [&](const std::string& base, std::string path) {
    for (;;) {
      if (const auto quota = quota_at(base + path)) least = std::min(least.value_or(1e9), *quota);
      if (path.empty() || path == "/") return;
      path.erase(path.rfind('/'));
    }
  };
  std::ifstream file(probe.proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string_view> parts = split(line, ':', 3);
    if (parts.size() != 3 || !parts[2].starts_with('/')) continue;
    if (parts[1].empty()) {
      take(probe.cgroup, std::string(parts[2]));
      continue;
    }
    const std::vector<std::string_view> names = split(parts[1], ',');
    if (std::find(names.begin(), names.end(), "cpu") == names.end()) continue;
    take(cat(probe.cgroup, "/", parts[1]), std::string(parts[2]));
    take(probe.cgroup + "/cpu", std::string(parts[2]));
  }
  return least;
}

// /dev/nvidia0, /dev/nvidia1, …; nvidiactl and nvidia-uvm are not devices of their own.
unsigned devices_present(const NodeProbe& probe) {
  unsigned count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(probe.devices, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("nvidia") || name.size() == 6) continue;
    const bool digits = std::all_of(name.begin() + 6, name.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (digits) ++count;
  }
  return count;
}

// Why there is none: a driver that lists GPUs where no device file does is worth a hint.
std::string none_present(const NodeProbe& probe) {
  std::string reason = cat("no ", probe.devices, "/nvidia0, nvidia1, ... on this machine");
  std::error_code error;
  const std::filesystem::directory_iterator listed(probe.proc + "/driver/nvidia/gpus", error);
  if (!error && listed != std::filesystem::directory_iterator()) {
    reason +=
        "; its driver has GPUs: `nvidia-smi` makes their files, a container must be given them";
  }
  return reason;
}

}  // namespace

unsigned count_cpus(const NodeProbe& probe) {
  const unsigned allowed = probe.affinity != 0 ? probe.affinity : affinity_count();
  const std::optional<double> quota = cpu_quota(probe);
  if (!quota) return allowed;
  const double rounded = std::max(1.0, std::ceil(*quota - 1e-9));
  return rounded < static_cast<double>(allowed) ? static_cast<unsigned>(rounded) : allowed;
}

std::optional<std::string> device_mask(const EnvironmentMap& environment) {
  const auto mask = environment.find("CUDA_VISIBLE_DEVICES");
  if (mask == environment.end()) return std::nullopt;
  return mask->second;
}

std::vector<std::string> visible_gpus(const EnvironmentMap& environment, const NodeProbe& probe) {
  return agent::visible_devices(device_mask(environment), devices_present(probe));
}

unsigned count_gpus(const EnvironmentMap& environment, const NodeProbe& probe,
                    std::string& reason) {
  const unsigned present = devices_present(probe);
  if (present == 0) {
    reason = none_present(probe);
    return 0;
  }
  const std::optional<std::string> mask = device_mask(environment);
  const std::size_t visible = visible_gpus(environment, probe).size();
  if (visible == 0) reason = cat("CUDA_VISIBLE_DEVICES='", *mask, "' hides all ", present);
  return static_cast<unsigned>(visible);
}

absl::StatusOr<std::uint32_t> count_slots(const std::string& text,
                                          const EnvironmentMap& environment,
                                          const NodeProbe& probe) {
  if (text == "cpu") return count_cpus(probe);
  if (text == "gpu" || text == "auto") {
    std::string reason;
    const unsigned gpus = count_gpus(environment, probe, reason);
    if (gpus > 0) return gpus;
    if (text == "auto") return count_cpus(probe);
    return absl::InvalidArgumentError(cat("gpu: no GPU is visible (", reason, ")"));
  }
  const auto count = read_number<std::uint32_t>(text);
  if (count.value_or(0) == 0) {
    return absl::InvalidArgumentError(cat("'", text, "' is not a number of workers"));
  }
  return *count;
}

}  // namespace muster::launcher
