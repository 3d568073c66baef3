// SPDX-License-Identifier: Apache-2.0
//
// Variables that look like options but are none. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/options.h"

namespace muster::launcher {

// Kubernetes gives every pod MUSTER_PORT=tcp://..., MUSTER_SERVICE_HOST and the like for a service
// named "muster", and MUSTER_MASTER_PORT for one named "muster-master".
bool is_service_variable(std::string_view name, std::string_view value);

// A line for each MUSTER_ variable that nothing reads and, unless `pet_is_ignored`, each such PET_
// one: a mistyped option must not be silent.
std::vector<std::string> unknown_variables(const EnvironmentMap& environment, bool pet_is_ignored);

}  // namespace muster::launcher
