// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/tls.h"

#include <array>
#include <atomic>
#include <chrono>
#include <dirent.h>
#include <future>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <catch2/catch.hpp>

#include "proto/base/check.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/transport/certificates.h"

namespace muster::transport {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

std::array<File, 2> pair() {
  std::array<int, 2> ends{-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {File(ends[0]), File(ends[1])};
}

std::size_t open_files() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr)
    ++count;
  ::closedir(folder);
  return count;
}

void wait_for(int fd, short what) {
  pollfd poll{fd, what, 0};
  MUSTER_CHECK(::poll(&poll, 1, 60000) == 1);
}

// Up to `limit` bytes, or until the end.
std::string read_all(int fd, std::size_t limit) {
  std::string text;
  std::array<char, 65536> buffer{};
  while (text.size() < limit) {
    wait_for(fd, POLLIN);
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    wait_for(fd, POLLOUT);
    const ssize_t wrote = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    MUSTER_CHECK(wrote > 0);
    at += static_cast<std::size_t>(wrote);
  }
}

// A client and a server on the two ends of a socket, each with its own Tls, and a loop that runs.
class Both {
 public:
  Both() : files_(test::make_certificates(folder_.path())) {
    thread_ = std::thread([this] { io_.run(); });
    client = *Tls::load(files_, nullptr);
    server = *Tls::load(files_, nullptr);
  }
  ~Both() {
    client.reset();
    server.reset();
    io_.stop();
    thread_.join();
  }

  // The client's end once it has heard `greeting`; the server's end is in `served`.
  TlsResult connect(const std::string& host, const std::string& greeting = "hello") {
    auto ends = pair();
    std::promise<TlsResult> accepted;
    std::promise<TlsResult> connected;
    server->accept(door_, std::move(ends[0]), kPatience,
                   [&](TlsResult result) { accepted.set_value(std::move(result)); });
    client->connect(door_, std::move(ends[1]), host, kPatience,
                    [&](TlsResult result) { connected.set_value(std::move(result)); });
    served = accepted.get_future().get();
    if (served.kind == TlsResult::Kind::kConnected) write_all(served.file.get(), greeting);
    TlsResult result = connected.get_future().get();
    if (result.kind == TlsResult::Kind::kConnected) {
      CHECK(read_all(result.file.get(), greeting.size()) == greeting);
    }
    return result;
  }

  std::shared_ptr<LoopDoor> door() const { return door_; }

  std::shared_ptr<Tls> client;
  std::shared_ptr<Tls> server;
  TlsResult served;

 private:
  testing::TempDir folder_;
  TlsFiles files_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::shared_ptr<LoopDoor> door_ = std::make_shared<LoopDoor>(io_);
  std::thread thread_;
};

TEST_CASE("bytes pass both ways, many at once and in order") {
  Both both;
  const TlsResult client = both.connect("127.0.0.1");
  REQUIRE(client.kind == TlsResult::Kind::kConnected);
  std::string there(8U << 20U, '\0');
  for (std::size_t i = 0; i < there.size(); ++i)
    there[i] = static_cast<char>(i * 2654435761U >> 13U);
  const std::string back(there.rbegin(), there.rend());
  std::thread writes_there([&] { write_all(client.file.get(), there); });
  std::thread writes_back([&] { write_all(both.served.file.get(), back); });
  std::string got_back;
  std::thread reads([&] { got_back = read_all(client.file.get(), back.size()); });
  const std::string got = read_all(both.served.file.get(), there.size());
  writes_there.join();
  writes_back.join();
  reads.join();
  CHECK(got == there);
  CHECK(got_back == back);
}

TEST_CASE("what was written before a close arrives, then the end, even if all ends at once") {
  Both both;
  TlsResult client = both.connect("127.0.0.1");
  REQUIRE(client.kind == TlsResult::Kind::kConnected);
  const std::string last(100000, 'x');
  std::thread writes([&] {
    write_all(client.file.get(), last);
    client.file.reset();
    both.client.reset();
  });
  CHECK(read_all(both.served.file.get(), last.size() + 1) == last);
  writes.join();
}

TEST_CASE("a name that the certificate is not for") {
  Both both;
  const TlsResult client = both.connect("127.0.0.2");
  CHECK(client.kind == TlsResult::Kind::kUntrusted);
  CHECK(client.text ==
        "its certificate is not taken here: IP address mismatch: it is for IP Address:127.0.0.1");
  CHECK(both.served.kind == TlsResult::Kind::kUntrusted);
  CHECK(both.connect("localhost").text ==
        "its certificate is not taken here: hostname mismatch: it is for IP Address:127.0.0.1");
}

TEST_CASE("somebody who says nothing, something else, or goes") {
  Both both;
  const auto accept = [&](File socket, Duration timeout) {
    std::promise<TlsResult> ended;
    both.server->accept(both.door(), std::move(socket), timeout,
                        [&](TlsResult result) { ended.set_value(std::move(result)); });
    return ended.get_future().get();
  };
  SECTION("nothing") {
    auto ends = pair();
    const TlsResult result = accept(std::move(ends[0]), 1ms);
    CHECK(result.kind == TlsResult::Kind::kBroken);
    CHECK(result.text == "the TLS handshake took too long");
    CHECK(read_all(ends[1].get(), 1).empty());
  }
  SECTION("HTTP/2 without TLS") {
    auto ends = pair();
    write_all(ends[1].get(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    CHECK(accept(std::move(ends[0]), kPatience).kind == TlsResult::Kind::kNotTls);
    CHECK(read_all(ends[1].get(), 100) == kTlsAlert);
  }
  SECTION("gone") {
    auto ends = pair();
    ends[1].reset();
    CHECK(accept(std::move(ends[0]), kPatience).text == "closed the connection");
  }
  SECTION("a server without TLS") {
    auto ends = pair();
    write_all(ends[1].get(), std::string("\0\0\0\4\0\0\0\0\0", 9));
    std::promise<TlsResult> ended;
    both.client->connect(both.door(), std::move(ends[0]), "127.0.0.1", kPatience,
                         [&](TlsResult result) { ended.set_value(std::move(result)); });
    CHECK(ended.get_future().get().kind == TlsResult::Kind::kNotTls);
  }
}

TEST_CASE("nobody waits for what is given up, and nothing is left open") {
  const std::size_t before = open_files();
  std::atomic<int> told = 0;
  const auto count = [&told](const TlsResult&) { ++told; };
  {
    Both both;
    auto ends = pair();
    both.server->accept(both.door(), std::move(ends[0]), kPatience, count);
    const TlsResult client = both.connect("127.0.0.1");  // and is still open at the end
    REQUIRE(client.kind == TlsResult::Kind::kConnected);
    both.served.file.reset();
    CHECK(read_all(client.file.get(), 1).empty());
    both.door()->close();
    both.client->connect(both.door(), std::move(ends[1]), "127.0.0.1", kPatience, count);
  }
  CHECK(told == 0);
  CHECK(open_files() == before);
}

}  // namespace
}  // namespace muster::transport
