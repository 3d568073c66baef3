// SPDX-License-Identifier: Apache-2.0
//
// --numa-binding: which processors each worker of this node may use. Pure; what the machine looks
// like comes from topology.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::launcher {

enum class NumaBinding : std::uint8_t {
  kNone,
  kNode,         // all processors of its NUMA node
  kSocket,       // … of its package
  kCoreComplex,  // … that share its last level cache
  kExclusive,    // cores of its NUMA node that no other worker has
};

// Processors by the kernel's numbers. A core has one, or more where threads share it.
using Core = std::vector<int>;

// A part of the machine that workers are bound to, with the processors that this process may use.
struct Domain {
  std::vector<Core> cores;  // never empty
  std::size_t processors() const;
};

// By local rank, in ascending order; REQUIRES: domains and workers above 0.
// `near`: by local rank, the domain of its device; without one, or where the list is shorter,
// workers go to the domains in turn, in blocks as even as they can be.
// Errors, kInvalidArgument: exclusive, and a domain has fewer cores than workers.
absl::StatusOr<std::vector<std::vector<int>>> place_workers(
    NumaBinding binding, const std::vector<Domain>& domains, std::uint32_t workers,
    const std::vector<std::optional<std::size_t>>& near);

// "0-3,8": as the kernel writes lists of processors.
std::string processor_list(const std::vector<int>& processors);
// Empty where `text` is no such list.
std::vector<int> parse_processor_list(std::string_view text);

}  // namespace muster::launcher
