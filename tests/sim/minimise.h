// SPDX-License-Identifier: Apache-2.0
//
// Makes the world of a failing seed smaller while it fails in the same way: fewer kinds of
// faults, fewer nodes, a shorter time; and, of the smallest found, the chances with the shortest
// story.
#pragma once

#include <string>

#include "tests/sim/options.h"

namespace muster::sim {

// Which promise was broken: a failure's text up to the colon, or its first words.
std::string kind_of(const std::string& failure);

// `options` themselves where their world does not fail. Takes some seconds at most.
SimOptions minimise(const SimOptions& options);

// The arguments of tests/sim/main.cc that give these options.
std::string arguments(const SimOptions& options);

}  // namespace muster::sim
