// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <arpa/inet.h>
#include <charconv>

#include <absl/status/status.h>

#include "launcher/commands/options.h"
#include "launcher/commands/text.h"

namespace muster::launcher {

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? cat(host, ":", port) : cat("[", host, "]:", port);
}

unsigned StreamChoice::of(std::uint32_t local_rank) const {
  const auto found = by_rank.find(local_rank);
  return found == by_rank.end() ? everyone : found->second;
}

absl::StatusOr<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  const auto bad = [&](std::string_view why) {
    return absl::InvalidArgumentError(cat("'", text, "' ", why));
  };
  Endpoint endpoint;
  endpoint.port = default_port;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return bad("has a '[' without ']'");
    endpoint.host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest[0] != ':') return bad("is not [ADDRESS]:PORT");
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (std::count(text.begin(), text.end(), ':') > 1) {
    // A bare IPv6 address: its last group must not be taken for a port.
    endpoint.host = text;
  } else {
    const std::size_t colon = text.find(':');
    endpoint.host = text.substr(0, colon);
    has_port = colon != std::string_view::npos;
    if (has_port) port = text.substr(colon + 1);
  }
  if (endpoint.host.empty()) return bad("names no host");
  for (const char c : endpoint.host) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '/' || c == '@' || c == ',') {
      return bad("is not HOST:PORT");
    }
  }
  // More than one colon, or brackets: nothing but an IPv6 address, scope (%eth0) and all.
  if (endpoint.host.find(':') != std::string::npos || text.starts_with('[')) {
    in6_addr address{};
    const std::string number = endpoint.host.substr(0, endpoint.host.find('%'));
    if (inet_pton(AF_INET6, number.c_str(), &address) != 1) {
      return bad("is neither HOST:PORT nor an IPv6 address");
    }
  }
  if (!has_port) return endpoint;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc{} || port.empty() || end != port.data() + port.size()) {
    return bad("has no port from 0 to 65535 after the ':'");
  }
  return endpoint;
}

}  // namespace muster::launcher
