// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/shared_library.h"

#include <dlfcn.h>

#include <absl/status/status.h>

namespace muster::runtime::cuda {

absl::StatusOr<SharedLibrary> SharedLibrary::open(const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return SharedLibrary(name, handle);
    }
    const char* why = dlerror();  // begins with the name
    tried += (tried.empty() ? "" : "; ") + std::string(why != nullptr ? why : name.c_str());
  }
  return absl::NotFoundError(tried);
}

void* SharedLibrary::find(const char* symbol) const {
  return dlsym(handle_, symbol);
}

}  // namespace muster::runtime::cuda
