// SPDX-License-Identifier: Apache-2.0
//
// muster-train: one rank of a training run; see train_program.h.
#include "proto/process/standard_descriptors.h"
#include "worker_runtime/bin/train_program.h"

namespace {

[[gnu::constructor(muster::kFirstOfAll)]] void hold() {
  muster::hold_standard_descriptors();
}

}  // namespace

int main(int argc, char** argv) {
  return muster::runtime::run_train_program(argc, argv, {});
}
