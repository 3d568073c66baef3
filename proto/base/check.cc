// SPDX-License-Identifier: Apache-2.0
#include "proto/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace muster {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "muster: internal error: %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace muster
