// SPDX-License-Identifier: Apache-2.0
//
// What `muster status` shows: a server's description as text for people and as JSON for scripts.
// Pure.
#pragma once

#include <string>

#include "launcher/rendezvous/core/rendezvous.h"
#include "launcher/rendezvous/shell/control_client.h"

namespace muster::launcher {

const char* phase_word(rendezvous::Phase phase);

// Both end in a newline.
std::string report_text(const rendezvous::ServerDescription& server);
std::string report_json(const rendezvous::ServerDescription& server);

}  // namespace muster::launcher
