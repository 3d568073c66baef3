// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/blas_api.h"

#include <type_traits>
#include <utility>

#include "worker_runtime/cuda/driver_api.h"
#include "worker_runtime/cuda/shared_library.h"

namespace muster::runtime::cuda {

std::vector<std::string> blas_names(int driver) {
  std::vector<std::string> names{"libcublasLt.so.13", "libcublasLt.so.12"};
  if (driver / 1000 == 12) std::swap(names[0], names[1]);
  return names;
}

absl::StatusOr<BlasApi> load_blas() {
  const absl::StatusOr<SharedLibrary> library =
      SharedLibrary::open(blas_names(installed_driver_version()));
  if (!library.ok()) {
    return absl::NotFoundError("cuBLAS is not here (CUDA 12 or 13, package libcublas): " +
                               std::string(library.status().message()));
  }
  BlasApi api;
  api.library = library->name();
  std::string missing;
  const auto resolve = [&](const char* name, auto& pointer) {
    void* found = library->find(name);
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(found);
  };
#define MUSTER_CU_BLAS_RESOLVE(result, name, ...) resolve(#name, api.name);
  MUSTER_CU_BLAS(MUSTER_CU_BLAS_RESOLVE)
#undef MUSTER_CU_BLAS_RESOLVE
  if (!missing.empty()) {
    return absl::FailedPreconditionError(library->name() + " has no " + missing);
  }
  return api;
}

absl::Status blas_status(const BlasApi& api, LtStatus result, const std::string& what) {
  if (result == kLtSuccess) return absl::OkStatus();
  const char* words = api.cublasLtGetStatusString(result);
  return absl::InternalError(what + ": " + (words != nullptr ? words : "unknown cuBLAS error"));
}

}  // namespace muster::runtime::cuda
