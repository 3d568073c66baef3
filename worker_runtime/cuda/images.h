// SPDX-License-Identifier: Apache-2.0
//
// The device code in this program: fatbins, one a file of device/, each holding machine code for
// several compute capabilities and PTX that newer devices compile for themselves.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::runtime::cuda {

struct DeviceImage {
  std::string name;  // of the source file, without its ending
  std::span<const std::byte> fatbin;
  int cuda = 0;  // version of the compiler that made it: 13000 for 13.0; 0: not known
};

// Empty: this was built where no nvcc was found.
const std::vector<DeviceImage>& device_images();

struct CodeEntry {
  bool ptx = false;    // text that a driver compiles, else machine code
  int capability = 0;  // 80 for sm_80 and compute_80
  bool operator==(const CodeEntry&) const = default;
};

// What a fatbin holds, by its headers. kInvalidArgument with the place where it is not one.
absl::StatusOr<std::vector<CodeEntry>> code_in(std::span<const std::byte> fatbin);
// The same for people: "code for 8.0 and 9.0, PTX for 9.0 and newer".
std::string code_text(std::span<const std::byte> fatbin);

}  // namespace muster::runtime::cuda
