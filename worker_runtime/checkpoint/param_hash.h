// SPDX-License-Identifier: Apache-2.0
//
// One number for all parameters, by which two runs are compared bit for bit: XXH3-128 over every
// parameter in bytewise order of its name: name, NUL, u32 number of dimensions, u64 dimensions,
// FP32 data, little-endian, unpadded. Tied parameters count once, as `wte.weight`.
//
// Thread rule: pure.
#pragma once

#include <span>
#include <string>

#include "worker_runtime/model/gpt.h"

namespace muster::runtime {

// 32 lower-case hexadecimal digits. REQUIRES master.size() == layout.size.
std::string param_hash(const FlatLayout& layout, std::span<const float> master);

}  // namespace muster::runtime
