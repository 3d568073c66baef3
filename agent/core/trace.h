// SPDX-License-Identifier: Apache-2.0
//
// What happens to an agent and what it orders, one line each, for --log-level debug. Words only:
// nothing here decides. Pure functions; any thread.
#pragma once

#include <string>

#include "agent/core/agent.h"

namespace muster::agent {

// Empty for what says nothing by itself: a deadline that passed, progress that was read (what
// follows from them is traced), and lines that are said anyway.
std::string trace(const Event& event);
std::string trace(const Action& action);

const char* phase_word(Phase phase);

}  // namespace muster::agent
