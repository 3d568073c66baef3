// SPDX-License-Identifier: Apache-2.0
//
// Names in a checkpoint directory: step-<n> is a checkpoint; step-<n>.tmp-… is being written or
// was left behind; step-<n>.bad-… did not verify and was moved out of the way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::runtime {

std::string step_name(std::uint64_t step);

// What stands after the number: "" for a checkpoint itself.
struct StepName {
  std::uint64_t step = 0;
  std::string suffix;
};
// nullopt: not one of ours ("step-", "step-007", "LATEST").
std::optional<StepName> parse_step_name(std::string_view name);

// Left behind by a writer: step-<n>.tmp-…, FENCE.tmp-…, LATEST.tmp-…, PROBE-….
bool is_temporary(std::string_view name);

}  // namespace muster::runtime
