// SPDX-License-Identifier: Apache-2.0
//
// The device code that was built in, and what is read of its headers.
#include "worker_runtime/cuda/images.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::runtime::cuda {

TEST_CASE("each image has machine code for sm_80 and sm_90, and PTX for what comes later") {
#if defined(MUSTER_HAS_NVCC)
  REQUIRE_FALSE(device_images().empty());
#endif
  for (const DeviceImage& image : device_images()) {
    CAPTURE(image.name);
    const auto entries = code_in(image.fatbin);
    INFO(entries.status().ToString());
    REQUIRE(entries.ok());
    for (const CodeEntry& wanted :
         {CodeEntry{false, 80}, CodeEntry{false, 90}, CodeEntry{true, 90}})
      CHECK(std::count(entries->begin(), entries->end(), wanted) == 1);
    CHECK(code_text(image.fatbin) == "code for 8.0 and 9.0, PTX for 9.0 and newer");
    CHECK(image.cuda >= 12000);
  }
}

TEST_CASE("what is no fatbin is told where it is broken") {
  std::vector<std::byte> bytes(16 + 64 + 8);
  const auto put = [&](std::size_t at, auto value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
  put(0, std::uint32_t{0xBA55ED50});
  put(6, std::uint16_t{16});
  put(8, std::uint64_t{72});
  put(16, std::uint16_t{2});
  put(20, std::uint32_t{64});
  put(24, std::uint64_t{8});
  put(44, std::uint32_t{80});
  const auto good = code_in(bytes);
  REQUIRE(good.ok());
  CHECK(*good == std::vector<CodeEntry>{{false, 80}});
  CHECK(code_text(bytes) == "code for 8.0");

  CHECK(code_in({}).status().message() == "no fatbin: magic at byte 0");
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK(!code_in(std::span(bytes).first(size)).ok());
  put(24, std::uint64_t{1} << 63U);
  CHECK(code_in(bytes).status().message() == "no fatbin: entry's size at byte 16");
  put(24, std::uint64_t{8});
  put(20, std::uint32_t{8});
  CHECK(!code_in(bytes).ok());
}

}  // namespace muster::runtime::cuda
