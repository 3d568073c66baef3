// SPDX-License-Identifier: Apache-2.0
//
// What every rendezvous server of this program says about itself, embedded or of its own.
#pragma once

#include <string>

#include "launcher/commands/options.h"
#include "launcher/rendezvous/shell/server_core.h"

namespace muster::launcher {

// Instance, holder, seed, version and user; the rest is the caller's.
rendezvous::ServerOptions server_options(const EnvironmentMap& environment,
                                         const std::string& instance);

}  // namespace muster::launcher
