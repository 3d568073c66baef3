// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/context.h"

#include "tests/support/fake_cuda/blas.h"
#include "tests/support/fake_cuda/driver.h"
#include "tests/support/fake_cuda/nccl.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

// Device 0 for what is under test, if that is on fakes; device 1 for the reference.
constexpr int kReference = 1;

FakeDriver& fake_driver_of_process() {
  static FakeDriver driver({.devices = 2, .pace = FakeDriver::Pace::kRandom});
  return driver;
}

absl::StatusOr<Opened> open(const DeviceLibraries& libraries, int ordinal) {
  Opened opened;
  auto driver = libraries.driver();
  if (!driver.ok()) return driver.status();
  auto blas = libraries.blas();
  if (!blas.ok()) return blas.status();
  opened.blas = *std::move(blas);
  auto device = Device::open(*driver, ordinal, libraries.images());
  if (!device.ok()) return device.status();
  opened.device = *std::move(device);
  return opened;
}

}  // namespace

DeviceLibraries fake_libraries() {
  return {.driver = [] { return fake_driver_of_process().api(); },
          .blas = [] { return fake_blas(); },
          .nccl =
              [] {
                fake_driver_of_process();
                static FakeNccl nccl;
                return nccl.api();
              },
          .images = FakeDriver::images};
}

absl::StatusOr<Opened> open_device(const Context& context) {
  return open(context.libraries, 0);
}

absl::StatusOr<Opened> open_reference() {
  return open(fake_libraries(), kReference);
}

const std::vector<Section>& sections() {
  static const std::vector<Section> all{
      {"facts", check_facts, 30, 30, true, true},
      {"kernels", check_kernels, 90, 20, true, true},
      {"model", check_model, 90, 40, true, true},
      {"nccl", check_nccl, 60, 30, true, true},
      {"ranks", check_ranks, 120, 90, true, true},
      {"speed", measure_ceilings_and_kernels, 90, 15, true, false},
      {"steps", measure_steps, 90, 60, true, false},
      {"torch", measure_torch, 150, 150, false, false},
  };
  return all;
}

}  // namespace muster::runtime::cuda::gpu_check
