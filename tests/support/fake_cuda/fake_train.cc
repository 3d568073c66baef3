// SPDX-License-Identifier: Apache-2.0
//
// muster-train on devices that are not there. FAKE_NCCL_DIRECTORY: a directory that all ranks have.
// FAKE_DEVICES: of this host (8). FAKE_NCCL_SPOILS: a rank whose sums are wrong.
#include <cstdlib>
#include <string>

#include "proto/process/standard_descriptors.h"
#include "tests/support/fake_cuda/blas.h"
#include "tests/support/fake_cuda/driver.h"
#include "tests/support/fake_cuda/nccl.h"
#include "worker_runtime/bin/train_program.h"

namespace {

[[gnu::constructor(muster::kFirstOfAll)]] void hold() {
  muster::hold_standard_descriptors();
}

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace muster::runtime;  // NOLINT(google-build-using-namespace)
  static cuda::FakeDriver driver({.devices = std::stoi(variable("FAKE_DEVICES", "8")),
                                  .pace = cuda::FakeDriver::Pace::kRandom,
                                  .alone = false});
  static cuda::FakeNccl nccl(
      cuda::FakeNccl::Options{.directory = variable("FAKE_NCCL_DIRECTORY", ""),
                              .spoils = std::stoi(variable("FAKE_NCCL_SPOILS", "-1"))});
  return run_train_program(argc, argv,
                           {.driver = [] { return driver.api(); },
                            .blas = [] { return cuda::fake_blas(); },
                            .nccl = [] { return nccl.api(); },
                            .images = cuda::FakeDriver::images});
}
