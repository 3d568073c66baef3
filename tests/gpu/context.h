// SPDX-License-Identifier: Apache-2.0
//
// What a section of gpu-check works with, and the sections.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "tests/gpu/report.h"
#include "worker_runtime/cuda/device.h"
#include "worker_runtime/cuda/engine/libraries.h"

namespace muster::runtime::cuda::gpu_check {

struct Context {
  bool on_fakes = false;
  DeviceLibraries libraries;  // under test
  Report* report = nullptr;
  std::string program;  // path of this program
  std::string folder;   // empty, for files
  std::string after;    // go on behind this, which ended the process before; see Report::at
  std::string torch;    // command that trains the same model in PyTorch; empty: none
};

// A section: an error is a check that does not hold.
struct Section {
  std::string name;
  absl::Status (*run)(const Context&);
  int seconds;    // that it may take
  int quiet;      // … without a row
  bool on_fakes;  // … where there is no device
  bool checks;    // its figures are not all there is: it has to be finished
};
const std::vector<Section>& sections();

absl::Status check_facts(const Context& context);
absl::Status check_kernels(const Context& context);
absl::Status check_model(const Context& context);
absl::Status check_nccl(const Context& context);
absl::Status check_ranks(const Context& context);
absl::Status measure_ceilings_and_kernels(const Context& context);
absl::Status measure_steps(const Context& context);
absl::Status measure_torch(const Context& context);

// The device under test and its products.
struct Opened {
  std::shared_ptr<Device> device;
  BlasApi blas;
};
absl::StatusOr<Opened> open_device(const Context& context);
// The fakes, of which there is one set in a process: what results are compared with.
DeviceLibraries fake_libraries();
absl::StatusOr<Opened> open_reference();

}  // namespace muster::runtime::cuda::gpu_check
