// SPDX-License-Identifier: Apache-2.0
//
// Which addresses are this machine's, and where to listen so that a name leads here.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

namespace muster::launcher {

// Numeric addresses of this machine's interfaces (getifaddrs).
std::vector<std::string> own_addresses();
// True for one of those, and for every address of 127.0.0.0/8 and ::1.
bool is_own_address(const std::string& numeric, const std::vector<std::string>& own);
// True where one of `addresses`, the endpoint's, is this node's. Loopback addresses are every
// host's; among several nodes on one host, one that advertises another of them gives way.
bool owns_endpoint(const std::vector<std::string>& addresses, const std::vector<std::string>& own,
                   const std::string& advertised);
// True for 127.0.0.0/8, ::1 and their mapped form.
bool is_loopback_address(const std::string& numeric);
// Where to listen so that `host` (as written, with the addresses it has) reaches us: that address
// where it is written as a number or is this machine's; empty, every address, where the name
// means loopback only here (Debian's own host name) or is not ours at all.
std::string listen_host(const std::string& host, const std::vector<std::string>& addresses,
                        const std::vector<std::string>& own);

}  // namespace muster::launcher
