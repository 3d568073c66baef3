// SPDX-License-Identifier: Apache-2.0
//
// What we call of NVIDIA's management library (libnvidia-ml.so.1), as a table of function pointers
// that is filled when it is needed: agents start on hosts without it. Names, arguments and
// meanings are those of the NVML API reference, version 12; declared here, since hosts that build
// this need no CUDA.
#pragma once

#include <string>

#include <absl/status/statusor.h>

// The library's own handle type.
struct nvmlDevice_st;

namespace muster::agent {

using NvmlDevice = nvmlDevice_st*;
using NvmlResult = int;

struct NvmlMemory {              // [bytes]
  unsigned long long total = 0;  // NOLINT(google-runtime-int): as nvml.h has it
  unsigned long long free = 0;   // NOLINT(google-runtime-int)
  unsigned long long used = 0;   // NOLINT(google-runtime-int)
};

struct NvmlProcess {
  unsigned pid = 0;
  unsigned long long used_bytes = 0;  // NOLINT(google-runtime-int): all ones: not known
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
};

inline constexpr NvmlResult kNvmlSuccess = 0;
inline constexpr NvmlResult kNvmlInsufficientSize = 7;

// clang-format off
#define MUSTER_NVML(F)                                                            \
  F(nvmlInit_v2)                                                                  \
  F(nvmlShutdown)                                                                 \
  F(nvmlDeviceGetCount_v2, unsigned*)                                             \
  F(nvmlDeviceGetHandleByIndex_v2, unsigned, NvmlDevice*)                         \
  F(nvmlDeviceGetHandleByUUID, const char*, NvmlDevice*)                          \
  F(nvmlDeviceGetMemoryInfo, NvmlDevice, NvmlMemory*)                             \
  F(nvmlDeviceGetComputeRunningProcesses_v3, NvmlDevice, unsigned*, NvmlProcess*)
// clang-format on

struct NvmlApi {
#define MUSTER_NVML_POINTER(name, ...) NvmlResult (*name)(__VA_ARGS__) = nullptr;
  MUSTER_NVML(MUSTER_NVML_POINTER)
#undef MUSTER_NVML_POINTER
};

// `library`: a name that the dynamic linker looks up, or a path. It stays loaded until the process
// ends. kNotFound: it is not there, or lacks a function (drivers before 510), which is named.
// Thread rule: any thread; reads files, so not the io thread.
absl::StatusOr<NvmlApi> load_nvml(const std::string& library);

}  // namespace muster::agent
