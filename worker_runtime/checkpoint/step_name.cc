// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/step_name.h"

#include <charconv>

namespace muster::runtime {

std::string step_name(std::uint64_t step) {
  return "step-" + std::to_string(step);
}

std::optional<StepName> parse_step_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  StepName parsed;
  const char* const first = name.data() + kPrefix.size();
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, parsed.step);
  if (error != std::errc() || (*first == '0' && end - first > 1)) return std::nullopt;
  parsed.suffix.assign(end, last);
  if (!parsed.suffix.empty() && parsed.suffix.front() != '.') return std::nullopt;
  return parsed;
}

bool is_temporary(std::string_view name) {
  for (const std::string_view prefix : {"FENCE.tmp-", "LATEST.tmp-", "PROBE-"}) {
    if (name.starts_with(prefix)) return true;
  }
  const auto step = parse_step_name(name);
  return step && step->suffix.starts_with(".tmp-");
}

}  // namespace muster::runtime
