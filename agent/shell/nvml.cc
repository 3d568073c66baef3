// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/nvml.h"

#include <dlfcn.h>
#include <type_traits>

#include <absl/status/status.h>

namespace muster::agent {

absl::StatusOr<NvmlApi> load_nvml(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
    return absl::NotFoundError(why != nullptr ? why : library);
  }
  NvmlApi api;
  std::string missing;
  const auto resolve = [&](const char* name, auto& pointer) {
    void* const found = ::dlsym(handle, name);
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(found);
  };
#define MUSTER_NVML_RESOLVE(name, ...) resolve(#name, api.name);
  MUSTER_NVML(MUSTER_NVML_RESOLVE)
#undef MUSTER_NVML_RESOLVE
  if (!missing.empty()) return absl::NotFoundError(library + " has no " + missing);
  return api;
}

}  // namespace muster::agent
