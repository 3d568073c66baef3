// SPDX-License-Identifier: Apache-2.0
//
// One connection: TLS on `socket`, plain bytes on a socket pair. It keeps itself alive until either
// side is closed and what was still to send has left.
//
// Thread rule: the thread of its io context.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>

#include "proto/base/time.h"
#include "proto/transport/tls.h"

namespace muster::transport {

class TlsPump {
 public:
  virtual ~TlsPump() = default;

  struct Plan {
    bool is_server = false;
    std::string host;  // clients
    Duration timeout{0};
    std::function<void(TlsResult)> done;  // once, unless given up
    std::function<void()> ended;          // once, last
  };
  static std::shared_ptr<TlsPump> start(boost::asio::io_context& io,
                                        std::shared_ptr<boost::asio::ssl::context> context,
                                        File socket, Plan plan);

  // Ends it at once. No `done` follows.
  virtual void end() = 0;
  // Whether `done` is still to be called.
  virtual bool is_shaking_hands() const = 0;
};

}  // namespace muster::transport
