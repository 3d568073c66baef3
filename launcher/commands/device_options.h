// SPDX-License-Identifier: Apache-2.0
//
// --devices and --virtual-local-rank: which GPUs workers see. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::launcher {

// The list that --devices stands for, as CUDA_VISIBLE_DEVICES takes it. `mask`: what stands there
// already; then numbers in `list` count its entries, and names (UUIDs, MIG devices, or beginnings
// of such) have to be among them where it has names.
// Errors, kInvalidArgument: one line, with the entry.
absl::StatusOr<std::vector<std::string>> choose_devices(const std::string& list,
                                                        const std::optional<std::string>& mask);

// The device of each of `slots` local ranks: the entries of `mask` in order, or 0, 1, …
// Errors, kInvalidArgument: the mask has fewer.
absl::StatusOr<std::vector<std::string>> own_devices(const std::optional<std::string>& mask,
                                                     std::uint32_t slots);

}  // namespace muster::launcher
