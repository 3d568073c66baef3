// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cpu/product_isa.h"

#include <catch2/catch.hpp>

namespace muster::runtime {

TEST_CASE("two processors have the largest named set in common that lies within both") {
  constexpr ProductIsa kAvx2 = 0x7;
  constexpr ProductIsa kAvx2Vnni = 0x407;
  constexpr ProductIsa kCore = 0x27;
  constexpr ProductIsa kBf16 = 0xe7;
  CHECK(largest_within(kBf16 & kCore) == kCore);
  CHECK(largest_within(kCore & kAvx2Vnni) == kAvx2);  // neither contains the other
  CHECK(largest_within(kBf16) == kBf16);
  CHECK(largest_within(0x10) == 0);
  CHECK(product_isa_name(largest_within(kBf16 & kAvx2Vnni)) == "avx2");
}

TEST_CASE("what this processor has is a set that oneDNN names") {
  const ProductIsa own = product_isa();
  CHECK(largest_within(own) != 0);
  CHECK((largest_within(own) & own) == largest_within(own));
}

}  // namespace muster::runtime
