// SPDX-License-Identifier: Apache-2.0
//
// Fault plans from JSON (README, "Faults on purpose") to data, with every mistake named by its
// place in the document. Pure but for reading the file that --chaos names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "proto/base/faults.h"

namespace muster::launcher {

// What a job can be, as far as one node knows it.
struct PlanBounds {
  std::uint32_t max_nodes = 1;
  std::uint32_t slots = 1;  // workers on this node
  NodeName node;            // this node's name
  // The last generation there can be; nullopt: no bound is known.
  std::optional<Generation> last_generation{};
};

// `text` is JSON where it begins with '{' or '[', else a file's path.
absl::StatusOr<FaultPlan> read_fault_plan(const std::string& text);

absl::StatusOr<FaultPlan> parse_fault_plan(const std::string& json);

// Refuses faults that can never fire in a job of these bounds. Where other nodes may have more
// workers than this one nothing is known of them, and nothing is refused on their behalf.
absl::Status check_fault_plan(const FaultPlan& plan, const PlanBounds& bounds);

// One line a fault, in words: "0: SIGKILL to rank 1 at step 130 of generation 0".
std::string describe_fault(const Fault& fault);

}  // namespace muster::launcher
