// SPDX-License-Identifier: Apache-2.0
//
// What this machine has.
#include <string>

#include "tests/gpu/context.h"
#include "worker_runtime/cpu/isa.h"

namespace muster::runtime::cuda::gpu_check {

absl::Status check_facts(const Context& context) {
  Report& report = *context.report;
  std::string code;
  for (const DeviceImage& image : context.libraries.images()) {
    const auto entries = code_in(image.fatbin);
    if (!entries.ok()) continue;
    code += (code.empty() ? "" : "; ") + image.name + ":";
    for (const CodeEntry& entry : *entries)
      code += (entry.ptx ? " compute_" : " sm_") + std::to_string(entry.capability);
  }
  report.fact("device code", code.empty() ? "none" : code);
  auto opened = open_device(context);
  if (!opened.ok()) return opened.status();
  const DeviceFacts& device = opened->device->facts();
  report.fact("device", device.name + ", " + device.uuid + ", " + device.pci_bus);
  report.fact("compute capability",
              std::to_string(device.capability_major) + "." +
                  std::to_string(device.capability_minor) + ", " +
                  std::to_string(device.multiprocessors) + " multiprocessors, " +
                  std::to_string(device.shared_per_block) + " bytes of shared memory a block");
  report.fact("driver", "CUDA " + cuda_version_text(device.driver_version));
  const auto memory = opened->device->memory();
  if (!memory.ok()) return memory.status();
  report.figure("memory", static_cast<double>(memory->second) / 0x1p30, "GiB");
  report.figure("memory free", static_cast<double>(memory->first) / 0x1p30, "GiB");
  report.fact("cuBLASLt",
              opened->blas.library + " " + std::to_string(opened->blas.cublasLtGetVersion()));
  const auto nccl = context.libraries.nccl();
  report.fact("NCCL", nccl.ok() ? nccl->library + " " + nccl_version_text(nccl->version)
                                : nccl.status().ToString());
  report.fact("host kernels", isa_name(best_isa()));
  report.check("the device has compute capability 8.0 or newer", device.capability_major >= 8);
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
