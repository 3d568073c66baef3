// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/server_options.h"

#include <unistd.h>

#include "launcher/commands/node_facts.h"
#include "launcher/commands/text.h"

namespace muster::launcher {

rendezvous::ServerOptions server_options(const EnvironmentMap& environment,
                                         const std::string& instance) {
  rendezvous::ServerOptions options;
  options.user = user_name(environment);
  options.version = MUSTER_VERSION;
  options.seed = random_number();
  options.machine.server_instance = instance;
  options.machine.holder = cat("host ", host_name(), ", pid ", getpid(), ", user ", options.user);
  return options;
}

}  // namespace muster::launcher
