// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/driver_api.h"

#include <array>
#include <cstdint>

#include "worker_runtime/cuda/shared_library.h"

namespace muster::runtime::cuda {
namespace {

// cuGetProcAddress_v2: the form of a function that a version of the API had.
using GetProcAddress = CuResult (*)(const char*, void**, int, std::uint64_t, int*);

absl::StatusOr<SharedLibrary> open_driver() {
  return SharedLibrary::open({"libcuda.so.1"});
}

// 0: it does not say.
int version_of(const SharedLibrary& driver) {
  const auto ask = reinterpret_cast<CuResult (*)(int*)>(driver.find("cuDriverGetVersion"));
  int version = 0;
  return ask != nullptr && ask(&version) == kCuSuccess ? version : 0;
}

struct DriverFloor {
  int cuda_major;
  int driver;
};
constexpr std::array<DriverFloor, 3> kDriverFloors{{{13, 580}, {12, 525}, {11, 450}}};

absl::Status too_old(int version) {
  return absl::FailedPreconditionError(
      "the NVIDIA driver speaks CUDA " + cuda_version_text(version) +
      "; this build needs a driver for CUDA " + cuda_version_text(kCuOldestDriver) +
      " or newer (525.60.13 or newer)");
}

}  // namespace

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int oldest_driver_for(int cuda) {
  for (const DriverFloor& floor : kDriverFloors)
    if (floor.cuda_major == cuda / 1000) return floor.driver;
  return 0;
}

int installed_driver_version() {
  const absl::StatusOr<SharedLibrary> library = open_driver();
  return library.ok() ? version_of(*library) : 0;
}

absl::StatusOr<DriverApi> load_driver() {
  const absl::StatusOr<SharedLibrary> library = open_driver();
  if (!library.ok()) {
    return absl::NotFoundError("no NVIDIA driver is installed here (" +
                               std::string(library.status().message()) + ")");
  }
  const int version = version_of(*library);
  if (version == 0) {
    return absl::FailedPreconditionError(library->name() + " does not say its version");
  }
  const auto address_of = reinterpret_cast<GetProcAddress>(library->find("cuGetProcAddress_v2"));
  if (version < kCuOldestDriver || address_of == nullptr) return too_old(version);
  DriverApi api;
  api.library = library->name();
  std::string missing;
  const auto resolve = [&](const char* name, auto& pointer) {
    void* found = nullptr;
    int status = 0;
    if (address_of(name, &found, kCuOldestDriver, 0, &status) != kCuSuccess || found == nullptr) {
      missing += (missing.empty() ? "" : ", ") + std::string(name);
    } else {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(found);
    }
  };
#define MUSTER_CU_RESOLVE(name, ...) resolve(#name, api.name);
  MUSTER_CU_DRIVER(MUSTER_CU_RESOLVE)
#undef MUSTER_CU_RESOLVE
  if (!missing.empty()) {
    return absl::FailedPreconditionError(library->name() + " of CUDA " +
                                         cuda_version_text(version) + " has no " + missing);
  }
  return api;
}

absl::Status cuda_status(const DriverApi& api, CuResult result, const std::string& what) {
  if (result == kCuSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* words = nullptr;
  if (api.cuGetErrorName(result, &name) != kCuSuccess || name == nullptr) name = "unknown error";
  if (api.cuGetErrorString(result, &words) != kCuSuccess || words == nullptr) words = "";
  std::string text = what + ": " + name;
  if (*words != '\0') text += std::string(", ") + words;
  if (result == kCuOutOfMemory) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace muster::runtime::cuda
