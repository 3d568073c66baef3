// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/device_options.h"

#include <algorithm>
#include <string_view>

#include <absl/status/status.h>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

std::vector<std::string> entries_of(std::string_view mask) {
  std::vector<std::string> entries;
  if (trim(mask).empty()) return entries;
  for (const std::string_view word : split(mask, ','))
    entries.emplace_back(trim(word));
  return entries;
}

bool is_number(std::string_view entry) {
  return read_number<std::uint32_t>(entry).has_value();
}

// "GPU-8932f937", "MIG-…", as nvidia-smi -L shows them.
bool is_name(std::string_view entry) {
  return (entry.starts_with("GPU-") || entry.starts_with("MIG-")) && entry.size() > 4;
}

absl::StatusOr<std::string> entry_at(std::string_view word, const std::vector<std::string>& there) {
  const std::uint32_t index = *read_number<std::uint32_t>(word);
  if (index < there.size()) return there[index];
  return absl::InvalidArgumentError(cat("there is no device ", index, ": CUDA_VISIBLE_DEVICES='",
                                        join(there, ","), "' has ", there.size()));
}

absl::StatusOr<std::string> entry_named(std::string_view word,
                                        const std::vector<std::string>& there) {
  // Only names can be compared with names.
  const bool comparable = std::all_of(there.begin(), there.end(), is_name);
  const bool among = std::any_of(there.begin(), there.end(), [word](const std::string& entry) {
    return entry.starts_with(word) || word.starts_with(entry);
  });
  if (among || !comparable) return std::string(word);
  return absl::InvalidArgumentError(
      cat("device ", word, " is not in CUDA_VISIBLE_DEVICES='", join(there, ","), "'"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> choose_devices(const std::string& list,
                                                        const std::optional<std::string>& mask) {
  const std::vector<std::string> there = entries_of(mask.value_or(""));
  std::vector<std::string> chosen;
  for (const std::string_view word : entries_of(list)) {
    if (!is_number(word) && !is_name(word)) {
      return absl::InvalidArgumentError(
          cat("'", word, "' is neither the number nor the UUID (GPU-..., MIG-...) of a device"));
    }
    absl::StatusOr<std::string> entry = std::string(word);
    if (mask) entry = is_number(word) ? entry_at(word, there) : entry_named(word, there);
    if (!entry.ok()) return entry.status();
    if (std::find(chosen.begin(), chosen.end(), *entry) != chosen.end()) {
      return absl::InvalidArgumentError(cat("device ", word, " is there twice"));
    }
    chosen.push_back(*std::move(entry));
  }
  if (chosen.empty()) return absl::InvalidArgumentError("names no device");
  return chosen;
}

absl::StatusOr<std::vector<std::string>> own_devices(const std::optional<std::string>& mask,
                                                     std::uint32_t slots) {
  std::vector<std::string> devices = entries_of(mask.value_or(""));
  if (!mask) {
    for (std::uint32_t local_rank = 0; local_rank < slots; ++local_rank)
      devices.push_back(std::to_string(local_rank));
  }
  if (devices.size() < slots) {
    return absl::InvalidArgumentError(cat("CUDA_VISIBLE_DEVICES='", join(devices, ","), "' has ",
                                          devices.size(), " for ", slots, " workers"));
  }
  devices.resize(slots);
  return devices;
}

}  // namespace muster::launcher
