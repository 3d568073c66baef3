// SPDX-License-Identifier: Apache-2.0
//
// How a job is stopped, as flags and surroundings say together: torchrun's --signals-to-handle
// beside --forward-signals, Slurm's own forwarding, a pod's time to end. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "launcher/commands/options.h"

namespace muster::launcher {

// Where the two lists came from, for messages.
struct SignalOrigins {
  std::string handled;    // "--signals-to-handle"
  std::string forwarded;  // "--forward-signals"
  bool forwarded_given = false;
};

// Fills options.more_stop_signals from options.signals_to_handle, and takes them out of
// forward_signals where those are the defaults. Unknown names are ignored with a line, as torchrun
// does. TERM, INT, HUP and QUIT stop the job whether they are listed or not: nothing may be left
// behind, and what a signal's default action ends leaves things behind.
absl::Status settle_signals(const SignalOrigins& origins, RunOptions& options,
                            std::vector<std::string>& notes);

// Before the options are read: a step of Slurm passes signals on to all processes itself, so that
// workers would have each of them twice. Not where --forward-signals is given.
void detect_forward_signals(CommandLine& line, const EnvironmentMap& environment);

// In a pod, or where --pod-grace is given, and --stop-budget is not: the budget is what the pod
// has, less 2 s for its own end. Refused where nothing is left.
absl::Status settle_stop_budget(CommandLine& line, const EnvironmentMap& environment,
                                RunOptions& options);

}  // namespace muster::launcher
