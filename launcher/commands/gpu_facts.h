// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs this node has, as its driver says in /proc: no library is loaded, no device opened.
//
// Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/node_slots.h"

namespace muster::launcher {

// "NVIDIA H200, driver 580.65.06"; models in the order of the bus, each once, with " and "
// between. Empty: no driver, or it says nothing.
std::string gpu_line(const NodeProbe& probe = {});

// The driver's folders of its GPUs, in the order of the bus; each is named by its address there.
std::vector<std::filesystem::path> listed_gpus(const NodeProbe& probe);

// What stands behind `name` ("GPU UUID:") in such a folder's information; empty: nothing.
std::string gpu_field(const std::filesystem::path& gpu, std::string_view name);

}  // namespace muster::launcher
