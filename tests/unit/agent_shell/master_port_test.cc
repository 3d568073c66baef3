// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/master_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

// As a process-group store does it: SO_REUSEADDR, bind, listen.
UniqueFd listen_on(int family, std::uint16_t port, bool reuse) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* address = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six)
                                           : reinterpret_cast<const sockaddr*>(&four);
  const socklen_t length = family == AF_INET6 ? sizeof(six) : sizeof(four);
  if (::bind(socket.get(), address, length) != 0 || ::listen(socket.get(), 8) != 0) {
    socket.reset();
  }
  return socket;
}

bool accepts(std::uint16_t port) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&four), sizeof(four)) == 0;
}

constexpr std::uint16_t kLow = 20000;
constexpr std::uint16_t kHigh = 28999;

}  // namespace

TEST_CASE("a held port is free for a worker that reuses addresses, and for nobody else") {
  MasterPort holder(1);
  const auto port = holder.hold(kLow, kHigh);
  REQUIRE(port.ok());
  CHECK(*port >= kLow);
  CHECK(*port <= kHigh);
  CHECK_FALSE(accepts(*port));  // held, not listening
  CHECK_FALSE(listen_on(AF_INET, *port, false).valid());
  {
    const UniqueFd worker = listen_on(AF_INET, *port, true);
    REQUIRE(worker.valid());
    CHECK(accepts(*port));
  }
  const UniqueFd again = listen_on(AF_INET, *port, true);  // with TIME_WAIT about
  CHECK(again.valid());
}

TEST_CASE("a worker may listen on IPv6 where there is any") {
  MasterPort holder(2);
  const auto port = holder.hold(kLow, kHigh);
  REQUIRE(port.ok());
  if (const UniqueFd probe(::socket(AF_INET6, SOCK_STREAM, 0)); !probe.valid()) return;
  if (!listen_on(AF_INET6, 0, true).valid()) return;
  CHECK(listen_on(AF_INET6, *port, true).valid());
}

TEST_CASE("two jobs never hold the same port") {
  std::vector<std::unique_ptr<MasterPort>> holders;
  std::set<std::uint16_t> ports;
  std::uint16_t base = 0;
  {
    MasterPort probe(3);
    base = *probe.hold(kLow, kHigh - 40);
  }
  std::size_t held = 0;
  const auto high = static_cast<std::uint16_t>(base + 20);
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    holders.push_back(std::make_unique<MasterPort>(seed));
    const auto port = holders.back()->hold(base, high);
    if (!port.ok()) continue;
    ++held;
    CHECK(*port >= base);
    CHECK(*port <= high);
    ports.insert(*port);
  }
  CHECK(ports.size() == held);
  CHECK(held <= 21);
  CHECK(held > 1);
  CHECK_FALSE(holders.back()->hold(base, high).ok());  // all of it was tried
}

TEST_CASE("the port is another one for each generation, unless there is only one") {
  MasterPort holder(4);
  const auto first = holder.hold(kLow, kHigh);
  REQUIRE(first.ok());
  const auto low = static_cast<std::uint16_t>(*first);
  holder.release();
  CHECK(holder.port() == 0);
  CHECK(listen_on(AF_INET, low, false).valid());
  // Of two ports the one held last is not taken, whichever way the range is entered.
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    MasterPort pair(seed);
    const auto high = static_cast<std::uint16_t>(low + 1);
    const auto one = pair.hold(low, high);
    if (!one.ok()) continue;
    const auto two = pair.hold(low, high);
    if (two.ok()) CHECK(*one != *two);
  }
  MasterPort single(5);
  const auto only = single.hold(low, low);
  REQUIRE(only.ok());
  single.release();
  const auto same = single.hold(low, low);
  REQUIRE(same.ok());
  CHECK(*same == *only);
}

}  // namespace muster::agent
