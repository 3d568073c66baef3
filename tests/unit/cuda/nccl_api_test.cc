// SPDX-License-Identifier: Apache-2.0
//
// NCCL's table: versions and configurations; the real library where this host has one.
#include "worker_runtime/cuda/nccl_api.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster::runtime::cuda {

TEST_CASE("NCCL's version is read as it counts, and old ones are refused in words") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(21805) == "2.18.5");
  CHECK(nccl_version_text(2708) == "2.7.8");
  CHECK(check_nccl_version(22809, "libnccl.so.2").ok());
  CHECK(check_nccl_version(21901, "libnccl.so.2").ok());
  const absl::Status old = check_nccl_version(21805, "libnccl.so.2");
  CHECK(old.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(old.message() ==
        "libnccl.so.2 is NCCL 2.18.5; this build needs 2.19.1 or a newer 2.x (package libnccl2)");
  CHECK_FALSE(check_nccl_version(30100, "libnccl.so.2").ok());
}

TEST_CASE("a library gets the configuration that it knows, and never a blocking one") {
  const NcclConfig present = nccl_config(22809, "name");
  CHECK(present.size == sizeof(NcclConfig));
  CHECK(present.version == 22800);
  CHECK(present.magic == 0xcafebeef);
  CHECK(present.blocking == 0);
  CHECK(std::string(present.comm_name) == "name");
  CHECK(present.min_ctas == INT_MIN);
  const NcclConfig later = nccl_config(23007, "name");
  CHECK(later.size == sizeof(NcclConfig));
  CHECK(later.version == 22800);
  const NcclConfig middle = nccl_config(22705, "name");
  CHECK(middle.size == 72);
  CHECK(middle.version == 22700);
  const NcclConfig first = nccl_config(21903, "name");
  CHECK(first.size == 48);
  CHECK(first.version == 21800);
  CHECK(first.comm_name == nullptr);
}

TEST_CASE("where this host has NCCL, every function is found; where not, it says what to install") {
  const auto api = load_nccl();
  if (api.ok()) {
    CHECK(api->version >= kNcclOldest);
    CHECK((api->ncclCommInitRankScalable != nullptr) == (api->version >= kNcclScalable));
    CHECK(std::string(api->ncclGetErrorString(kNcclRemoteError)).find("remote") !=
          std::string::npos);
  } else {
    CHECK(std::string(api.status().message()).find("libnccl") != std::string::npos);
  }
}

}  // namespace muster::runtime::cuda
