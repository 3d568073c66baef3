// SPDX-License-Identifier: Apache-2.0
//
// What this machine looks like, for --numa-binding: its NUMA nodes, packages and caches as hwloc
// knows them, with the processors that this process may use, and the GPUs' places as the kernel has
// them in /sys. hwloc is loaded only when this is asked for: no other start pays for it.
//
// Thread rule: any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "launcher/commands/node_slots.h"
#include "launcher/commands/placement.h"

namespace muster::launcher {

// Domains of that kind with at least one usable processor, in the machine's order. REQUIRES: not
// kNone. `synthetic`: a machine as hwloc describes one ("pack:2 [numa] core:4 pu:2"), in place of
// this one; all of it is usable then. Errors: hwloc is not there, or cannot read the machine; the
// message says so.
absl::StatusOr<std::vector<Domain>> find_domains(NumaBinding binding,
                                                 const std::string& synthetic = "");

// For each of the devices (numbers in the order of the bus, or UUIDs): the domain that has its
// nearest processors; nullopt: the kernel does not say. `sys`: /sys, or a test's.
std::vector<std::optional<std::size_t>> domains_of_devices(const std::vector<std::string>& devices,
                                                           const std::vector<Domain>& domains,
                                                           const NodeProbe& probe = {},
                                                           const std::string& sys = "/sys");

}  // namespace muster::launcher
