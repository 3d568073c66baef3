// SPDX-License-Identifier: Apache-2.0
//
// scenario_test [--rewrite] [NAME-PART]: plays the scenarios of tests/scenario.
#include <iostream>
#include <string>

#include "tests/scenario/runner.h"

int main(int argc, char** argv) {
  bool rewrite = false;
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--rewrite") {
      rewrite = true;
    } else if (argument.starts_with("-")) {
      std::cerr << "usage: scenario_test [--rewrite] [NAME-PART]\n";
      return 2;
    } else {
      filter = argument;
    }
  }
  return muster::scenario::play_folder(MUSTER_SOURCE_DIR "/tests/scenario", filter, rewrite);
}
