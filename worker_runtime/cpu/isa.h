// SPDX-License-Identifier: Apache-2.0
//
// The instruction sets that our own kernels are compiled for. All of them give the same bits; the
// choice is one of speed only.
#pragma once

#include <cstdint>

namespace muster::runtime {

enum class Isa : std::uint8_t { kPortable, kAvx2, kAvx512 };

// Whether this processor (and its operating system) can run the kernels of `isa`.
bool isa_supported(Isa isa);

// The fastest supported one.
Isa best_isa();

// "portable", "avx2", "avx512".
const char* isa_name(Isa isa);

}  // namespace muster::runtime
