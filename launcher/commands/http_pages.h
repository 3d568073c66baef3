// SPDX-License-Identifier: Apache-2.0
//
// --http and --metrics-addr: which pages stand behind which address.
//
// Thread rule: io thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

#include "launcher/commands/options.h"
#include "launcher/http/http_door.h"
#include "launcher/http/metrics_text.h"

namespace muster::launcher {

struct HttpPlan {
  std::optional<Endpoint> http;          // all pages
  std::optional<Endpoint> metrics;       // /metrics alone; the same address again counts once
  std::function<std::string()> unready;  // empty text: ready; else why not
  std::function<void(http::MetricsText&)> render;
};

// Opens the doors and says where, where the port was not given. An error, kUnavailable, is a line
// that begins with the flag.
absl::StatusOr<std::vector<std::unique_ptr<http::HttpDoor>>> open_http(boost::asio::io_context& io,
                                                                       const HttpPlan& plan);

}  // namespace muster::launcher
