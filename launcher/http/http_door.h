// SPDX-License-Identifier: Apache-2.0
//
// A small HTTP/1.1 server on the io loop: GET and HEAD of a few pages, made when they are asked
// for. Plain and open to whoever reaches it, since kubelets and Prometheus ask so; nothing can be
// changed through it. A request has 5 s and 8 KiB; of more than 64 connections the rest is closed.
//
// Thread rule: io thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

namespace muster::http {

struct Page {
  int status = 200;
  std::string body;
};

// By path, "/livez". The text is plain; "/metrics" has the media type that Prometheus wants.
using Pages = std::map<std::string, std::function<Page()>>;

class HttpDoor {
 public:
  // `host`: as transport::Listener::tcp has it, and so are the errors.
  static absl::StatusOr<std::unique_ptr<HttpDoor>> open(boost::asio::io_context& io,
                                                        const std::string& host, int port,
                                                        Pages pages);
  // Closes every connection.
  ~HttpDoor();
  HttpDoor(const HttpDoor&) = delete;
  HttpDoor& operator=(const HttpDoor&) = delete;

  int port() const;

 private:
  struct State;
  explicit HttpDoor(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace muster::http
