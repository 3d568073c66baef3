// SPDX-License-Identifier: Apache-2.0
//
// What a process of a job shows to others over the network, and asks of them.
#pragma once

#include <memory>
#include <string>

namespace muster::transport {

class Tls;

struct Credentials {
  std::string token;         // bearer token; empty: none
  std::shared_ptr<Tls> tls;  // nullptr: plain connections

  // Whether who comes over the network has proved something.
  bool any() const { return tls != nullptr || !token.empty(); }
};

}  // namespace muster::transport
