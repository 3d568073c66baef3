// SPDX-License-Identifier: Apache-2.0
//
// The instruction set of oneDNN's products. Unlike that of our own kernels it decides the bits of
// a result, so ranks that must agree bit for bit lower it to what all of them have. oneDNN takes
// such a limit only before its first use, and asking it what it uses is a use: what this
// processor has is found out here.
//
// Thread rule: main thread, before any other.
#pragma once

#include <cstdint>
#include <string>

namespace muster::runtime {

// A set of instruction set extensions, as bits of dnnl_cpu_isa_t. ONEDNN_MAX_CPU_ISA counts.
using ProductIsa = std::uint32_t;
ProductIsa product_isa();

// Of the sets that oneDNN has names for, the largest within `bits`; 0: none.
ProductIsa largest_within(ProductIsa bits);
std::string product_isa_name(ProductIsa isa);

// Limits oneDNN's products to `isa`, one of largest_within(). False: it has been used already.
bool limit_products(ProductIsa isa);

}  // namespace muster::runtime
