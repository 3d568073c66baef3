// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/write_all.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

namespace muster::agent {

int write_all(int fd, std::string_view& rest, std::atomic<std::uint64_t>& written) {
  while (!rest.empty()) {
    const ssize_t count = ::write(fd, rest.data(), rest.size());
    if (count > 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
      written += static_cast<std::uint64_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      // Somebody who shares the descriptor made it non-blocking.
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (count < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace muster::agent
