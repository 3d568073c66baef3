// SPDX-License-Identifier: Apache-2.0
//
// Broken invariants end the process in every build type. This is for "cannot happen" only: what
// the outside world can cause is a protocol outcome or an absl::Status, never a CHECK.
#pragma once

namespace muster {

// Writes "muster: internal error: FILE:LINE: CONDITION" to stderr and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace muster

// One condition each: a failing line then names what was wrong.
#define MUSTER_CHECK(condition) \
  (static_cast<bool>(condition) ? void() : ::muster::check_failed(#condition, __FILE__, __LINE__))
