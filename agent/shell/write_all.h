// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace muster::agent {

// Writes all of it; 0 or the errno that stopped it, with `rest` what was not written. Waits where
// the descriptor is non-blocking. `written` grows with what was. Any thread.
int write_all(int fd, std::string_view& rest, std::atomic<std::uint64_t>& written);

}  // namespace muster::agent
