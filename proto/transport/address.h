// SPDX-License-Identifier: Apache-2.0
//
// Socket addresses in words.
#pragma once

#include <string>
#include <sys/socket.h>

namespace muster::transport {

// Numeric address without the port; an IPv4 address mapped into IPv6 is written as IPv4. Empty
// for other families.
std::string numeric_address(const sockaddr_storage& address);

// 0 for other families.
int port_of(const sockaddr_storage& address);

// Whether numeric `address` is this machine's loopback.
bool is_loopback(const std::string& address);

}  // namespace muster::transport
