// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/device_options.h"

#include <catch2/catch.hpp>

namespace muster::launcher {
namespace {

using Names = std::vector<std::string>;
using Mask = std::optional<std::string>;

std::string error_of(const std::string& list, const Mask& mask) {
  const auto devices = choose_devices(list, mask);
  return devices.ok() ? "" : std::string(devices.status().message());
}

}  // namespace

TEST_CASE("--devices counts what is visible already") {
  CHECK(*choose_devices("1, 3", std::nullopt) == Names{"1", "3"});
  CHECK(*choose_devices("1,0", "4,5,6") == Names{"5", "4"});
  CHECK(*choose_devices("1", "GPU-aa,GPU-bb") == Names{"GPU-bb"});
  CHECK(*choose_devices("GPU-aa,MIG-1", std::nullopt) == Names{"GPU-aa", "MIG-1"});
  CHECK(*choose_devices("GPU-b", "GPU-aa,GPU-bb") == Names{"GPU-b"});
  CHECK(*choose_devices("GPU-x", "0,1") == Names{"GPU-x"});  // the two cannot be compared
}

TEST_CASE("devices that are not there are refused by name") {
  CHECK(error_of("3", "4,5,6") == "there is no device 3: CUDA_VISIBLE_DEVICES='4,5,6' has 3");
  CHECK(error_of("0", "") == "there is no device 0: CUDA_VISIBLE_DEVICES='' has 0");
  CHECK(error_of("GPU-cc", "GPU-aa,GPU-bb") ==
        "device GPU-cc is not in CUDA_VISIBLE_DEVICES='GPU-aa,GPU-bb'");
  CHECK(error_of("cuda:0", std::nullopt) ==
        "'cuda:0' is neither the number nor the UUID (GPU-..., MIG-...) of a device");
  CHECK(error_of("0,,1", std::nullopt).starts_with("'' is neither"));
  CHECK(error_of("0,1,0", std::nullopt) == "device 0 is there twice");
  CHECK(error_of(" ", std::nullopt) == "names no device");
}

TEST_CASE("each worker has a device of its own with --virtual-local-rank") {
  CHECK(*own_devices(std::nullopt, 2) == Names{"0", "1"});
  CHECK(*own_devices("7,GPU-aa,3", 2) == Names{"7", "GPU-aa"});
  CHECK(own_devices("7", 2).status().message() == "CUDA_VISIBLE_DEVICES='7' has 1 for 2 workers");
  CHECK(own_devices("", 1).status().message() == "CUDA_VISIBLE_DEVICES='' has 0 for 1 workers");
}

}  // namespace muster::launcher
