// SPDX-License-Identifier: Apache-2.0
//
// What happened, in short words: for the trace of a failing seed and for the hash that tells two
// runs of one seed apart.
#pragma once

#include <string>

#include "agent/core/agent.h"
#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::sim {

std::string text(const AgentMessage& message);
std::string text(const ServerMessage& message);
std::string text(const agent::Event& event);
std::string text(const agent::Action& action);
std::string text(const rendezvous::Event& event);
std::string text(const rendezvous::Action& action);

}  // namespace muster::sim
