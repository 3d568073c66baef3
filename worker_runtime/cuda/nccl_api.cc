// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/nccl_api.h"

#include <type_traits>

#include "worker_runtime/cuda/shared_library.h"

namespace muster::runtime::cuda {

absl::StatusOr<NcclApi> load_nccl() {
  const absl::StatusOr<SharedLibrary> library = SharedLibrary::open({"libnccl.so.2"});
  if (!library.ok()) {
    return absl::NotFoundError("NCCL is not here (package libnccl2): " +
                               std::string(library.status().message()));
  }
  NcclApi api;
  api.library = library->name();
  const auto resolve = [&](const char* name, auto& pointer) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(library->find(name));
    return pointer != nullptr;
  };
  if (!resolve("ncclGetVersion", api.ncclGetVersion) ||
      api.ncclGetVersion(&api.version) != kNcclSuccess) {
    return absl::FailedPreconditionError(library->name() + " does not say its version");
  }
  absl::Status fits = check_nccl_version(api.version, api.library);
  if (!fits.ok()) return fits;
  std::string missing;
#define MUSTER_NCCL_RESOLVE(result, name, ...) \
  if (!resolve(#name, api.name)) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  MUSTER_NCCL(MUSTER_NCCL_RESOLVE)
#undef MUSTER_NCCL_RESOLVE
  if (!missing.empty()) {
    return absl::FailedPreconditionError(library->name() + " " + nccl_version_text(api.version) +
                                         " has no " + missing);
  }
  if (api.version >= kNcclScalable) {
    resolve("ncclCommInitRankScalable", api.ncclCommInitRankScalable);
  }
  return api;
}

absl::Status check_nccl_version(int version, const std::string& library) {
  if (version >= kNcclOldest && version < 30000) return absl::OkStatus();
  return absl::FailedPreconditionError(library + " is NCCL " + nccl_version_text(version) +
                                       "; this build needs " + nccl_version_text(kNcclOldest) +
                                       " or a newer 2.x (package libnccl2)");
}

NcclConfig nccl_config(int version, const char* name) {
  NcclConfig config;
  config.magic = kNcclConfigMagic;
  config.blocking = 0;
  if (version >= kNcclNamedComms) {
    config.comm_name = name;
    config.version = version >= 22800 ? 22800 : kNcclNamedComms;
    config.size =
        version >= 22800 ? sizeof(NcclConfig) : offsetof(NcclConfig, channels_per_net_peer);
  } else {
    config.version = 21800;
    // Up to split_share, and padded as a structure that ends there is.
    config.size = offsetof(NcclConfig, traffic_class) + sizeof(int);
  }
  return config;
}

std::string nccl_version_text(int version) {
  // Up to 2.8 a minor version had two digits less.
  const int unit = version >= 20000 ? 10000 : 1000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

std::string nccl_words(const NcclApi& api, NcclResult result, NcclComm comm) {
  const char* kind = api.ncclGetErrorString(result);
  std::string words = kind != nullptr ? kind : "unknown NCCL error";
  const char* last = api.ncclGetLastError(comm);
  std::string more = last != nullptr ? last : "";
  for (char& c : more)
    if (c == '\n' || c == '\t') c = ' ';
  while (!more.empty() && more.back() == ' ')
    more.pop_back();
  return more.empty() ? words : words + ": " + more;
}

}  // namespace muster::runtime::cuda
