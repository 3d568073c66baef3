// SPDX-License-Identifier: Apache-2.0
//
// muster-train on devices that are not there, and whose NCCL is told by the environment what to do:
//
//   FAKE_NCCL_DIRECTORY   that all ranks have
//   FAKE_DEVICES          of this host (8)
//   FAKE_DRIVER           its version of CUDA (13000)
//   FAKE_NCCL_SPOILS      a rank whose sums are wrong
//   FAKE_NCCL_SLOW        how often each collective is in progress still when it is asked about
//   FAKE_NCCL_VERSION     RANK:VERSION, of one rank, as in 1:22705
//   FAKE_BLAS_OTHERWISE   a rank whose cuBLASLt chooses other algorithms
//
// and in a job's first generation alone, so that what is restarted goes well:
//
//   FAKE_NCCL_ABSENT      a rank that does not come to the communicator
//   FAKE_NCCL_HANGS       RANK:NTH, the collective that it does not begin
//   FAKE_NCCL_FAILS       RANK:NTH:ERROR, the collective that fails, and NCCL's number for why
//   FAKE_NCCL_ABORTS      "hang": on every rank
//   FAKE_NCCL_LIMITS      INITIALISE:COLLECTIVE:ABORT, milliseconds
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include "proto/process/standard_descriptors.h"
#include "tests/support/fake_cuda/blas.h"
#include "tests/support/fake_cuda/driver.h"
#include "tests/support/fake_cuda/nccl.h"
#include "worker_runtime/bin/train_program.h"

namespace {

namespace cuda = muster::runtime::cuda;

[[gnu::constructor(muster::kFirstOfAll)]] void hold() {
  muster::hold_standard_descriptors();
}

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// The numbers of "1:2:3"; -1 where there are fewer.
std::array<int, 3> numbers(const char* name) {
  std::array<int, 3> all{-1, -1, -1};
  const std::string text = variable(name, "");
  std::size_t at = 0;
  for (std::size_t i = 0; i < all.size() && at < text.size(); ++i) {
    std::size_t used = 0;
    all.at(i) = std::stoi(text.substr(at), &used);
    at += used + 1;
  }
  return all;
}

bool first_generation() {
  return variable("MUSTER_GENERATION", "0") == "0";
}

cuda::FakeNccl::Options nccl_options(int own_rank) {
  cuda::FakeNccl::Options options{.launch_polls = std::stoi(variable("FAKE_NCCL_SLOW", "0")),
                                  .directory = variable("FAKE_NCCL_DIRECTORY", ""),
                                  .spoils = std::stoi(variable("FAKE_NCCL_SPOILS", "-1"))};
  const auto [rank, version, unused] = numbers("FAKE_NCCL_VERSION");
  if (rank == own_rank) options.version = version;
  return options;
}

void add_faults(cuda::FakeNccl& nccl) {
  if (!first_generation()) return;
  if (const auto [rank, unused, unused2] = numbers("FAKE_NCCL_ABSENT"); rank >= 0) {
    nccl.never_ready(rank);
  }
  if (const auto [rank, nth, unused] = numbers("FAKE_NCCL_HANGS"); rank >= 0) {
    nccl.never_launch(rank, nth);
  }
  if (const auto [rank, nth, error] = numbers("FAKE_NCCL_FAILS"); rank >= 0) {
    nccl.fail_at(rank, nth, error);
  }
  if (variable("FAKE_NCCL_ABORTS", "") == "hang") nccl.hold_aborts();
}

cuda::CommunicatorLimits limits() {
  cuda::CommunicatorLimits limits = cuda::DeviceLibraries().nccl_limits;
  const auto [initialise, collective, abort] = numbers("FAKE_NCCL_LIMITS");
  if (!first_generation() || abort < 0) return limits;
  limits.initialise = std::chrono::milliseconds(initialise);
  limits.collective = std::chrono::milliseconds(collective);
  limits.abort = std::chrono::milliseconds(abort);
  return limits;
}

}  // namespace

int main(int argc, char** argv) {
  static cuda::FakeDriver driver({.devices = std::stoi(variable("FAKE_DEVICES", "8")),
                                  .driver_version = std::stoi(variable("FAKE_DRIVER", "13000")),
                                  .pace = cuda::FakeDriver::Pace::kRandom,
                                  .alone = false});
  const std::string rank = variable("RANK", "0");
  static cuda::FakeNccl nccl(nccl_options(std::stoi(rank)));
  add_faults(nccl);
  const bool otherwise = variable("FAKE_BLAS_OTHERWISE", "") == rank;
  return muster::runtime::run_train_program(argc, argv,
                                            {.driver = [] { return driver.api(); },
                                             .blas = [=] { return cuda::fake_blas(otherwise); },
                                             .nccl = [] { return nccl.api(); },
                                             .images = cuda::FakeDriver::images,
                                             .nccl_limits = limits()});
}
