// SPDX-License-Identifier: Apache-2.0
#include "agent/core/device_memory.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace muster::agent {
namespace {

// An idle device has some memory in use for itself.
bool is_nearly_empty(const DeviceUse& device) {
  return device.used_bytes <= device.total_bytes / 64;
}

// Counters waver a little where nothing is freed.
constexpr std::uint64_t kFallBytes = 16U << 20U;

std::string gibibytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + (1U << 29U)) >> 30U;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool is_device(std::string_view entry, unsigned present) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
  unsigned index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  return error == std::errc{} && end == entry.data() + entry.size() && index < present;
}

}  // namespace

DeviceMemory::Verdict DeviceMemory::look(const std::vector<DeviceUse>& devices, Duration elapsed) {
  if (!still_since_) still_since_ = elapsed;
  bool all_empty = true;
  std::string holder;
  std::string falling;
  for (const DeviceUse& device : devices) {
    all_empty &= is_nearly_empty(device);
    for (const std::int64_t pid : device.pids) {
      if (!holder.empty() || std::find(pids_.begin(), pids_.end(), pid) == pids_.end()) continue;
      holder = "pid " + std::to_string(pid) + ", which ended, still holds memory of " +
               device.name + " (" + gibibytes(device.used_bytes) + " in use)";
    }
    const auto before = used_.find(device.name);
    if (before != used_.end() && device.used_bytes + kFallBytes <= before->second) {
      still_since_ = elapsed;
      falling = device.name + " still frees memory (" + gibibytes(device.used_bytes) + " in use)";
    }
    used_[device.name] = device.used_bytes;
  }
  if (holder.empty() && (all_empty || elapsed - *still_since_ >= kStill)) return {true, ""};
  if (elapsed < patience_) return {};
  return {true, holder.empty() ? falling : holder};
}

std::vector<std::string> visible_devices(const std::optional<std::string>& mask, unsigned present) {
  std::vector<std::string> out;
  if (!mask) {
    for (unsigned i = 0; i < present; ++i)
      out.push_back(std::to_string(i));
    return out;
  }
  std::string_view rest = *mask;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    std::string entry(trimmed(rest.substr(0, comma)));
    if (!is_device(entry, present)) break;
    if (std::find(out.begin(), out.end(), entry) != out.end()) return {};
    out.push_back(std::move(entry));
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return out;
}

}  // namespace muster::agent
