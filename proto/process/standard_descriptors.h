// SPDX-License-Identifier: Apache-2.0
//
// A process started without descriptors 0 to 2 would give these numbers to the next files it
// opens: lines meant for people would go there, and children would inherit them.
//
// Libraries open descriptors before main (gRPC an eventfd), so a program calls this from a
// constructor of its own that runs before all static initialisers of what is linked into it:
//   [[gnu::constructor(muster::kFirstOfAll)]] void hold() { muster::hold_standard_descriptors(); }
#pragma once

#include <cerrno>
#include <fcntl.h>

namespace muster {

inline constexpr int kFirstOfAll = 101;  // numbers below are the implementation's

// Gives /dev/null those of the three numbers that are free. Needs nothing initialised.
inline void hold_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      // The lowest free number is this one. A failure leaves it as it was.
      static_cast<void>(open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY));
    }
  }
}

}  // namespace muster
