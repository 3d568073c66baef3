// SPDX-License-Identifier: Apache-2.0
//
// Makes the world of a failing seed smaller while it fails in the same way: fewer kinds of
// faults, fewer nodes, a shorter time.
#pragma once

#include <string>

#include "tests/sim/options.h"

namespace muster::sim {

// Which promise was broken: a failure's text up to the colon, or its first words.
std::string kind_of(const std::string& failure);

// REQUIRES: a world of `options` fails. Runs at most a few hundred others.
SimOptions minimise(const SimOptions& options);

// The arguments of tests/sim/main.cc that give these options.
std::string arguments(const SimOptions& options);

}  // namespace muster::sim
