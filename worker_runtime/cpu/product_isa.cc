// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cpu/product_isa.h"

#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include <oneapi/dnnl/dnnl.hpp>

namespace muster::runtime {
namespace {

struct Named {
  ProductIsa bits;
  std::string_view name;  // lower case of the word that ONEDNN_MAX_CPU_ISA takes
};
// Largest first.
constexpr std::array<Named, 8> kNamed{{{dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
                                       {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
                                       {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
                                       {dnnl_cpu_isa_avx512_core, "avx512_core"},
                                       {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
                                       {dnnl_cpu_isa_avx2, "avx2"},
                                       {dnnl_cpu_isa_avx, "avx"},
                                       {dnnl_cpu_isa_sse41, "sse41"}}};

ProductIsa supported() {
  ProductIsa bits = 0;
#if defined(__x86_64__)
  const auto add = [&bits](bool has, ProductIsa isa) { bits |= has ? isa : 0U; };
  add(__builtin_cpu_supports("sse4.1"), dnnl_cpu_isa_sse41);
  add(__builtin_cpu_supports("avx"), dnnl_cpu_isa_avx);
  const bool avx2 = __builtin_cpu_supports("avx2");
  add(avx2, dnnl_cpu_isa_avx2);
  add(avx2 && __builtin_cpu_supports("avxvnni"), dnnl_cpu_isa_avx2_vnni);
  const bool core = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool vnni = core && __builtin_cpu_supports("avx512vnni");
  const bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
  const bool amx = bf16 && __builtin_cpu_supports("amx-tile") &&
                   __builtin_cpu_supports("amx-int8") && __builtin_cpu_supports("amx-bf16");
  add(core, dnnl_cpu_isa_avx512_core);
  add(vnni, dnnl_cpu_isa_avx512_core_vnni);
  add(bf16, dnnl_cpu_isa_avx512_core_bf16);
  add(amx, dnnl_cpu_isa_avx512_core_amx);
#endif
  return bits;
}

// What the user allows, as oneDNN reads it: the newer name of the variable first.
ProductIsa allowed() {
  for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) continue;
    std::string word(text);
    for (char& c : word)
      c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const Named& named : kNamed) {
      if (named.name == word) return named.bits;
    }
    break;
  }
  return ~ProductIsa{0};
}

}  // namespace

ProductIsa product_isa() {
  return supported() & allowed();
}

ProductIsa largest_within(ProductIsa bits) {
  for (const Named& named : kNamed) {
    if ((named.bits & bits) == named.bits) return named.bits;
  }
  return 0;
}

std::string product_isa_name(ProductIsa isa) {
  for (const Named& named : kNamed) {
    if (named.bits == isa) return std::string(named.name);
  }
  return "none";
}

bool limit_products(ProductIsa isa) {
  return dnnl_set_max_cpu_isa(static_cast<dnnl_cpu_isa_t>(isa)) == dnnl_success;
}

}  // namespace muster::runtime
