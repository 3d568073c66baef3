// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/placement.h"

#include <algorithm>
#include <map>

#include <absl/status/status.h>

#include "launcher/commands/text.h"
#include "proto/base/check.h"

namespace muster::launcher {

std::size_t Domain::processors() const {
  std::size_t count = 0;
  for (const Core& core : cores)
    count += core.size();
  return count;
}

absl::StatusOr<std::vector<std::vector<int>>> place_workers(
    NumaBinding binding, const std::vector<Domain>& domains, std::uint32_t workers,
    const std::vector<std::optional<std::size_t>>& near) {
  MUSTER_CHECK(!domains.empty() && workers > 0);
  std::map<std::size_t, std::vector<std::uint32_t>> workers_of;  // by domain
  for (std::uint32_t worker = 0; worker < workers; ++worker) {
    const std::size_t spread = worker * domains.size() / workers;
    const bool known = worker < near.size() && near[worker];
    workers_of[known ? *near[worker] : spread].push_back(worker);
  }
  std::vector<std::vector<int>> placed(workers);
  for (const auto& [index, here] : workers_of) {
    const std::vector<Core>& cores = domains.at(index).cores;
    const bool shares = binding != NumaBinding::kExclusive;
    if (!shares && cores.size() < here.size()) {
      return absl::InvalidArgumentError(cat("NUMA node ", index, " has ", cores.size(),
                                            cores.size() == 1 ? " core" : " cores", " for ",
                                            here.size(), " workers"));
    }
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::size_t first = shares ? 0 : i * cores.size() / here.size();
      const std::size_t end = shares ? cores.size() : (i + 1) * cores.size() / here.size();
      std::vector<int>& processors = placed[here[i]];
      for (std::size_t core = first; core < end; ++core)
        processors.insert(processors.end(), cores[core].begin(), cores[core].end());
      std::sort(processors.begin(), processors.end());
    }
  }
  return placed;
}

std::string processor_list(const std::vector<int>& processors) {
  std::string text;
  for (std::size_t i = 0; i < processors.size();) {
    std::size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1)
      ++last;
    text += cat(text.empty() ? "" : ",", processors[i]);
    if (last > i) text += cat("-", processors[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> parse_processor_list(std::string_view text) {
  constexpr int kMost = 1 << 16;
  std::vector<int> processors;
  for (const std::string_view part : split(trim(text), ',')) {
    const std::vector<std::string_view> ends = split(part, '-');
    const auto first = read_number<int>(ends.front());
    const auto last = read_number<int>(ends.back());
    if (!first || !last || ends.size() > 2 || *first < 0 || *last < *first || *last >= kMost) {
      return {};
    }
    for (int processor = *first; processor <= *last; ++processor)
      processors.push_back(processor);
  }
  return processors;
}

}  // namespace muster::launcher
