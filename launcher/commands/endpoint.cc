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

namespace {

bool is_ipv6(std::string_view host) {
  in6_addr address{};
  const std::size_t percent = host.find('%');  // the scope: fe80::1%eth0
  if (percent != std::string_view::npos && percent + 1 == host.size()) return false;
  return inet_pton(AF_INET6, std::string(host.substr(0, percent)).c_str(), &address) == 1;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// RFC 1123 and the underscore, which is no host name's but many a host's.
bool is_label(std::string_view label) {
  constexpr std::size_t kLongest = 63;
  return !label.empty() && label.size() <= kLongest && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                  c == '_';
         });
}

}  // namespace

bool is_host(std::string_view host) {
  constexpr std::size_t kLongest = 253;
  if (host.find(':') != std::string_view::npos) return is_ipv6(host);
  // Numbers and dots alone are an address, whole as it is: the resolver would make 0.0.0.5 of "5".
  const bool numeric =
      std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; });
  if (numeric) {
    in_addr address{};
    return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1;
  }
  if (host.ends_with('.')) host.remove_suffix(1);  // "this is the whole name"
  const std::vector<std::string_view> labels = split(host, '.');
  return host.size() <= kLongest && std::all_of(labels.begin(), labels.end(), is_label);
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
  constexpr std::string_view kNeverInside = "/@,";
  for (const char c : endpoint.host) {
    if (static_cast<unsigned char>(c) <= ' ' || kNeverInside.find(c) != std::string_view::npos) {
      return bad("is not HOST:PORT");
    }
  }
  if (text.starts_with('[') ? !is_ipv6(endpoint.host) : !is_host(endpoint.host)) {
    return bad(endpoint.host.find(':') != std::string::npos || text.starts_with('[')
                   ? "is neither HOST:PORT nor an IPv6 address"
                   : cat("is not HOST:PORT: '", endpoint.host,
                         "' is neither a host's name nor an address"));
  }
  if (!has_port) return endpoint;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc{} || port.empty() || end != port.data() + port.size()) {
    return bad("has no port from 0 to 65535 after the ':'");
  }
  return endpoint;
}

absl::StatusOr<Endpoint> parse_listen(std::string_view text,
                                      std::optional<std::uint16_t> default_port) {
  const bool only_port = !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
  if (!only_port && !text.starts_with(':')) {
    // Two defaults that give the same: the port is written.
    const absl::StatusOr<Endpoint> other = parse_endpoint(text, 1);
    absl::StatusOr<Endpoint> endpoint = parse_endpoint(text, default_port.value_or(0));
    if (endpoint.ok() && !default_port && endpoint->port != other->port) {
      return absl::InvalidArgumentError(cat("'", text, "' has no port; [HOST]:PORT is wanted"));
    }
    return endpoint;
  }
  const std::string_view port = only_port ? text : text.substr(1);
  const auto number = read_number<std::uint16_t>(port);
  if (!number) {
    return absl::InvalidArgumentError(cat("'", text, "' has no port from 0 to 65535"));
  }
  return Endpoint{.host = "", .port = *number};
}

}  // namespace muster::launcher
