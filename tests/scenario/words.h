// SPDX-License-Identifier: Apache-2.0
//
// Messages and events as one line of a transcript each: what decides is shown, what is constant
// is not.
#pragma once

#include <string>

#include "proto/base/events.h"
#include "proto/base/messages.h"

namespace muster::scenario {

std::string words(const Failure& failure);
std::string words(const Outcome& outcome);
std::string words(const JobEvent& event);
std::string words(const ServerMessage& message);

// a b c; "-" for none.
std::string joined(const std::vector<std::string>& names);

}  // namespace muster::scenario
