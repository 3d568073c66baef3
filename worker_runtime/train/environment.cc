// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/train/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <absl/status/status.h>

namespace muster::runtime {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

absl::Status read_number(const EnvironmentLookup& lookup, const char* name, std::int64_t lowest,
                         std::int64_t highest, std::optional<std::int64_t>& out) {
  const std::optional<std::string> text = lookup(name);
  if (!text || text->empty()) return absl::OkStatus();
  std::int64_t number = 0;
  const char* const last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, number);
  if (error != std::errc() || end != last || number < lowest || number > highest) {
    return absl::InvalidArgumentError(std::string(name) + "=" + *text + ": must be a number from " +
                                      std::to_string(lowest) + " to " + std::to_string(highest));
  }
  out = number;
  return absl::OkStatus();
}

// Goes into file names and JSON as it is.
bool plain(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

EnvironmentLookup process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

absl::StatusOr<LauncherFacts> launcher_facts(const EnvironmentLookup& lookup) {
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world;
  std::optional<std::int64_t> local;
  std::optional<std::int64_t> generation;
  std::optional<std::int64_t> restarts;
  constexpr std::int64_t kMostGenerations = std::int64_t{1} << 53;
  for (const absl::Status& status :
       {read_number(lookup, "WORLD_SIZE", 1, kMostRanks, world),
        read_number(lookup, "RANK", 0, kMostRanks, rank),
        read_number(lookup, "LOCAL_RANK", 0, kMostRanks, local),
        read_number(lookup, "MUSTER_GENERATION", 0, kMostGenerations, generation),
        read_number(lookup, "TORCHELASTIC_RESTART_COUNT", 0, kMostGenerations, restarts)}) {
    if (!status.ok()) return status;
  }
  if (rank.has_value() != world.has_value()) {
    return absl::InvalidArgumentError(rank ? "RANK is set but WORLD_SIZE is not"
                                           : "WORLD_SIZE is set but RANK is not");
  }
  LauncherFacts facts;
  if (rank) {
    if (*rank >= *world) {
      return absl::InvalidArgumentError("RANK=" + std::to_string(*rank) +
                                        " must be below WORLD_SIZE=" + std::to_string(*world));
    }
    facts.launched = true;
    facts.rank = static_cast<int>(*rank);
    facts.world_size = static_cast<int>(*world);
  }
  facts.local_rank = static_cast<int>(local.value_or(0));
  facts.run = lookup("MUSTER_RUN_ID").value_or("");
  if (!plain(facts.run)) {
    return absl::InvalidArgumentError("MUSTER_RUN_ID has characters that no run id has");
  }
  facts.generation = generation ? *generation : restarts.value_or(0);
  facts.master_addr = lookup("MASTER_ADDR").value_or("");
  facts.stop_file = lookup("MUSTER_STOP_FILE").value_or("");
  facts.error_file = lookup("TORCHELASTIC_ERROR_FILE").value_or("");
  return facts;
}

}  // namespace muster::runtime
