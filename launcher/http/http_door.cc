// SPDX-License-Identifier: Apache-2.0
#include "launcher/http/http_door.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "proto/transport/listener.h"

namespace muster::http {
namespace {

namespace beast = boost::beast;
using boost::system::error_code;

constexpr std::size_t kMaxConnections = 64;
constexpr std::size_t kMaxHeader = 8U << 10U;
constexpr auto kRequestTime = std::chrono::seconds(5);

using Response = beast::http::response<beast::http::string_body>;

bool is_read(beast::http::verb method) {
  return method == beast::http::verb::get || method == beast::http::verb::head;
}

}  // namespace

struct HttpDoor::State : std::enable_shared_from_this<HttpDoor::State> {
  // One connection: a request, its answer, the next request.
  class Connection : public std::enable_shared_from_this<Connection> {
   public:
    Connection(const std::shared_ptr<State>& door, boost::asio::ip::tcp::socket socket)
        : door_(door), stream_(std::move(socket)), buffer_(kMaxHeader) {}

    void read() {
      parser_.emplace();
      parser_->header_limit(kMaxHeader);
      parser_->body_limit(0);
      stream_.expires_after(kRequestTime);
      beast::http::async_read(stream_, buffer_, *parser_,
                              [self = shared_from_this()](const error_code& error, std::size_t) {
                                self->heard(error);
                              });
    }

    void close() {
      error_code ignored;
      stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
      stream_.close();
    }

   private:
    void heard(const error_code& error) {
      const auto door = door_.lock();
      if (!door) return;
      if (error) {
        // Whoever sent something is told what was wrong with it; the rest just ends.
        const bool is_theirs =
            error.category() ==
                beast::http::make_error_code(beast::http::error::bad_method).category() &&
            error != beast::http::error::end_of_stream &&
            error != beast::http::error::partial_message;
        if (!is_theirs) return door->forget(shared_from_this());
        response_ = Response(beast::http::status::bad_request, 11);
        response_.body() = "not a request that is understood here: " + error.message() + "\n";
        response_.keep_alive(false);
      } else {
        response_ = door->answer(parser_->get());
      }
      response_.prepare_payload();
      write(!error && parser_->get().method() == beast::http::verb::head);
    }

    void write(bool only_head) {
      const auto wrote = [self = shared_from_this()](const error_code& error, std::size_t) {
        self->answered(error);
      };
      if (only_head) {
        serializer_.emplace(response_);
        return beast::http::async_write_header(stream_, *serializer_, wrote);
      }
      beast::http::async_write(stream_, response_, wrote);
    }

    void answered(const error_code& error) {
      const auto door = door_.lock();
      if (!door) return;
      if (error || response_.need_eof() || !response_.keep_alive()) {
        return door->forget(shared_from_this());
      }
      read();
    }

    std::weak_ptr<State> door_;
    beast::tcp_stream stream_;
    beast::flat_buffer buffer_;
    std::optional<beast::http::request_parser<beast::http::empty_body>> parser_;
    Response response_;
    std::optional<beast::http::response_serializer<beast::http::string_body>> serializer_;
  };

  State(boost::asio::io_context& io_context, Pages all) : io(io_context), pages(std::move(all)) {}

  void connected(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    boost::asio::ip::tcp::socket socket(io);
    error_code error;
    if (connections.size() < kMaxConnections) {
      socket.assign(
          address.ss_family == AF_INET6 ? boost::asio::ip::tcp::v6() : boost::asio::ip::tcp::v4(),
          fd, error);
    }
    if (!socket.is_open()) {
      ::close(fd);
      return;
    }
    const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket));
    connections.insert(connection);
    connection->read();
  }

  void forget(const std::shared_ptr<Connection>& connection) {
    connection->close();
    connections.erase(connection);
  }

  Response answer(const beast::http::request<beast::http::empty_body>& request) const {
    Response response(beast::http::status::ok, request.version());
    response.keep_alive(request.keep_alive());
    response.set(beast::http::field::content_type, "text/plain; charset=utf-8");
    response.set(beast::http::field::cache_control, "no-store");
    if (!is_read(request.method())) {
      response.result(beast::http::status::method_not_allowed);
      response.set(beast::http::field::allow, "GET, HEAD");
      response.body() = "only GET and HEAD are answered here\n";
      return response;
    }
    const std::string_view target(request.target().data(), request.target().size());
    const std::string path(target.substr(0, target.find('?')));
    const auto page = pages.find(path);
    if (page == pages.end()) {
      response.result(beast::http::status::not_found);
      response.body() = "there is only";
      for (const auto& [known, make] : pages)
        response.body() += " " + known;
      response.body() += "\n";
      return response;
    }
    Page made = page->second();
    if (path == "/metrics") {
      response.set(beast::http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    }
    response.result(static_cast<unsigned>(made.status));
    response.body() = std::move(made.body);
    return response;
  }

  boost::asio::io_context& io;
  Pages pages;
  std::set<std::shared_ptr<Connection>> connections;
  std::unique_ptr<transport::Listener> listener;
};

HttpDoor::HttpDoor(std::shared_ptr<State> state) : state_(std::move(state)) {}

HttpDoor::~HttpDoor() {
  state_->listener.reset();
  for (const auto& connection : std::exchange(state_->connections, {}))
    connection->close();
}

absl::StatusOr<std::unique_ptr<HttpDoor>> HttpDoor::open(boost::asio::io_context& io,
                                                         const std::string& host, int port,
                                                         Pages pages) {
  auto state = std::make_shared<State>(io, std::move(pages));
  auto listener = transport::Listener::tcp(
      io, host, port, [raw = state.get()](int fd, const std::string&) { raw->connected(fd); });
  if (!listener.ok()) return listener.status();
  state->listener = *std::move(listener);
  return std::unique_ptr<HttpDoor>(new HttpDoor(std::move(state)));
}

int HttpDoor::port() const {
  return state_->listener->port();
}

}  // namespace muster::http
