// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/addresses.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

namespace muster::launcher {
namespace {

// The plain form of an address, so that texts compare: ::ffff:10.0.0.1 is 10.0.0.1.
std::string plain(const std::string& numeric) {
  in6_addr six{};
  if (inet_pton(AF_INET6, numeric.c_str(), &six) == 1) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      inet_ntop(AF_INET, &six.s6_addr[12], text.data(), text.size());
    } else {
      inet_ntop(AF_INET6, &six, text.data(), text.size());
    }
    return text.data();
  }
  return numeric;
}

bool is_numeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(entry->ifa_addr, length, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    std::string address = text.data();
    address.erase(std::min(address.size(), address.find('%')));  // the scope of link-local ones
    found.push_back(plain(address));
  }
  freeifaddrs(list);
  return found;
}

bool is_loopback_address(const std::string& numeric) {
  const std::string address = plain(numeric);
  return address == "::1" || (address.starts_with("127.") && is_numeric(address));
}

bool is_own_address(const std::string& numeric, const std::vector<std::string>& own) {
  return is_loopback_address(numeric) ||
         std::find(own.begin(), own.end(), plain(numeric)) != own.end();
}

bool owns_endpoint(const std::vector<std::string>& addresses, const std::vector<std::string>& own,
                   const std::string& advertised) {
  const bool elsewhere = is_loopback_address(advertised);
  return std::any_of(addresses.begin(), addresses.end(), [&](const std::string& address) {
    if (elsewhere && is_loopback_address(address)) return plain(address) == plain(advertised);
    return is_own_address(address, own);
  });
}

std::string listen_host(const std::string& host, const std::vector<std::string>& addresses,
                        const std::vector<std::string>& own) {
  std::string mine;
  bool loopback = false;
  for (const std::string& address : addresses) {
    loopback = loopback || is_loopback_address(address);
    if (mine.empty() && is_own_address(address, own)) mine = address;
  }
  if (mine.empty()) return "";
  // "localhost" means loopback everywhere; another name that does so means it on this host only,
  // and the other nodes will come in through an interface.
  const bool local_name = host == "localhost" || host.ends_with(".localhost");
  if (!is_numeric(host) && loopback && !local_name) return "";
  return mine;
}

}  // namespace muster::launcher
