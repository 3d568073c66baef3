// SPDX-License-Identifier: Apache-2.0
//
// One rank of a training run as a process: flags and environment in, exit code out; everything
// between is worker_runtime/train. A library, so that tests run it on devices that are not there.
//
// Thread rule: one call a process, from its first thread.
#pragma once

#include "worker_runtime/cuda/engine/libraries.h"

namespace muster::runtime {

// Blocks until the run is over. Ends the process itself where threads are left that cannot end.
int run_train_program(int argc, char** argv, const cuda::DeviceLibraries& libraries);

}  // namespace muster::runtime
