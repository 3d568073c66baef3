// SPDX-License-Identifier: Apache-2.0
//
// What a launcher says to a rank through the environment. Muster's own variables, torchrun's
// where they mean the same; none at all is a run of one rank.
//
// Thread rule: pure, but for the lookup handed in.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "proto/base/ids.h"

namespace muster::runtime {

struct LauncherFacts {
  bool launched = false;  // RANK and WORLD_SIZE are set
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks of this host
  RunId run;           // empty: no launcher names runs; the caller makes one up
  Generation generation = 0;
  std::string master_addr;
  std::string stop_file;   // MUSTER_STOP_FILE; empty: planned stops are not announced
  std::string error_file;  // TORCHELASTIC_ERROR_FILE; empty: none
};

// getenv as a value: nullopt where the variable is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;
EnvironmentLookup process_environment();

// kInvalidArgument, naming the variable: not a number, out of range, one of a pair missing.
absl::StatusOr<LauncherFacts> launcher_facts(const EnvironmentLookup& lookup);

}  // namespace muster::runtime
