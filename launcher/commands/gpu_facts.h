// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs this node has, as its driver says in /proc: no library is loaded, no device opened.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "launcher/commands/node_slots.h"

namespace muster::launcher {

// "NVIDIA H200, driver 580.65.06"; models in the order of the bus, each once, with " and "
// between. Empty: no driver, or it says nothing.
std::string gpu_line(const NodeProbe& probe = {});

}  // namespace muster::launcher
