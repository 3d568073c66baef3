// SPDX-License-Identifier: Apache-2.0
//
// muster-train's command line.
#pragma once

#include <string>
#include <vector>

namespace muster::runtime {

struct TrainFlags {
  std::string config;
  std::vector<std::string> settings;
  std::string metrics;
  std::string resume = "auto";
};

// -1: go on; else the exit code: help was printed, or what is wrong was said.
int parse_train_flags(const std::vector<std::string>& arguments, TrainFlags& flags);

}  // namespace muster::runtime
