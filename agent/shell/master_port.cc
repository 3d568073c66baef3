// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/master_port.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <utility>

#include "proto/base/check.h"

namespace muster::agent {

namespace {

// One socket for IPv6 and IPv4 both: a worker may bind either. -1 and errno otherwise.
int bind_everywhere(std::uint16_t port) {
  UniqueFd both(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int off = 0;
  if (both.valid() && ::setsockopt(both.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    if (::bind(both.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0) {
      return both.release();
    }
    // EADDRNOTAVAIL and the like: IPv6 is compiled in but switched off.
    if (errno == EADDRINUSE || errno == EACCES) return -1;
  }
  UniqueFd four(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!four.valid()) return -1;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  if (::bind(four.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0) return -1;
  return four.release();
}

}  // namespace

MasterPort::MasterPort(std::uint64_t seed) : rng_(seed) {}

absl::StatusOr<std::uint16_t> MasterPort::hold(std::uint16_t low, std::uint16_t high) {
  MUSTER_CHECK(low > 0);
  MUSTER_CHECK(low <= high);
  const std::uint32_t count = static_cast<std::uint32_t>(high - low) + 1;
  only_one_ = count == 1;
  if (only_one_ && socket_.valid() && port_ == low) return port_;
  socket_.reset();
  const auto start = static_cast<std::uint32_t>(rng_.below(count));
  int reason = EADDRINUSE;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto port = static_cast<std::uint16_t>(low + (start + i) % count);
    if (port == port_ && !only_one_) continue;
    UniqueFd socket(bind_everywhere(port));
    if (!socket.valid()) {
      reason = errno;
      if (reason != EADDRINUSE && reason != EACCES) break;
      continue;
    }
    const int on = 1;
    MUSTER_CHECK(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    socket_ = std::move(socket);
    port_ = port;
    return port;
  }
  return absl::ResourceExhaustedError("no free master port in " + std::to_string(low) + "-" +
                                      std::to_string(high) + ": " + std::strerror(reason));
}

void MasterPort::release() {
  if (!only_one_) socket_.reset();
}

}  // namespace muster::agent
