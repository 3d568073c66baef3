// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/tls_pump.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "proto/transport/tls_context.h"

namespace muster::transport {
namespace {

using boost::system::error_code;
using Generic = boost::asio::generic::stream_protocol;
using Secure = boost::asio::ssl::stream<Generic::socket>;

constexpr std::size_t kChunk = 16U << 10U;  // a record of TLS
constexpr Duration kGoodbye = 500ms;        // for what is still to be sent, and "close notify"
constexpr unsigned char kHandshake = 0x16;  // the first byte of whoever speaks TLS

class Pump final : public TlsPump, public std::enable_shared_from_this<Pump> {
 public:
  Pump(boost::asio::io_context& io, std::shared_ptr<boost::asio::ssl::context> context, File socket,
       Plan plan)
      : context_(std::move(context)),
        plan_(std::move(plan)),
        raw_(std::move(socket)),
        secure_(io, *context_),
        plain_(io),
        timer_(io) {}

  void begin();
  void end() override { finish(); }
  bool is_shaking_hands() const override { return plan_.done != nullptr; }

 private:
  // ---- plumbing

  // A handler that does nothing once this has ended.
  template <class... More>
  auto then(void (Pump::*next)(const error_code&, More...)) {
    return [self = shared_from_this(), next](const error_code& error, More... more) {
      if (!self->ended_) (self.get()->*next)(error, more...);
    };
  }

  void within(Duration limit, void (Pump::*late)()) {
    timer_.expires_after(limit);
    timer_.async_wait(
        [weak = weak_from_this(), late, purpose = ++purpose_](const error_code& error) {
          const auto self = weak.lock();
          if (self && !error && !self->ended_ && self->purpose_ == purpose) (self.get()->*late)();
        });
  }

  // ---- the handshake

  // Whoever does not speak TLS is told in bytes that it can recognise.
  void hear_first_byte(const error_code& error) {
    if (error) return fail({TlsResult::Kind::kBroken, {}, error.message()});
    unsigned char byte = 0;
    const int socket = secure_.next_layer().native_handle();
    const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got <= 0) return fail({TlsResult::Kind::kBroken, {}, "closed the connection"});
    if (byte == kHandshake) return shake_hands();
    // Unread bytes would turn the close into a reset, which may overtake the alert.
    while (::recv(socket, inbound_.data(), inbound_.size(), MSG_DONTWAIT) > 0) {
    }
    (void)::send(socket, kTlsAlert.data(), kTlsAlert.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    fail({TlsResult::Kind::kNotTls, {}, "speaks without TLS"});
  }

  void shake_hands() {
    if (!plan_.is_server) expect_host(secure_.native_handle(), plan_.host);
    secure_.async_handshake(plan_.is_server ? Secure::server : Secure::client,
                            then(&Pump::shook_hands));
  }

  // A client whose certificate is not taken learns that when it reads: it waits for first bytes.
  void shook_hands(const error_code& error) {
    if (error) return explain(error);
    if (!plan_.is_server || hand_over()) read_secure();
  }

  bool hand_over() {
    std::array<int, 2> pair{-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
      fail({TlsResult::Kind::kBroken, {}, std::generic_category().message(errno)});
      return false;
    }
    File theirs(pair[1]);
    error_code error;
    plain_.assign(boost::asio::local::stream_protocol(), pair[0], error);
    if (error) {
      ::close(pair[0]);
      fail({TlsResult::Kind::kBroken, {}, error.message()});
      return false;
    }
    ++purpose_;
    timer_.cancel();
    tell({TlsResult::Kind::kConnected, std::move(theirs), ""});
    read_plain();
    return true;
  }

  void too_slow() { fail({TlsResult::Kind::kBroken, {}, "the TLS handshake took too long"}); }

  void explain(const error_code& error) {
    fail(explain_tls_failure(secure_.native_handle(), error, plan_.is_server));
  }

  // ---- the bytes

  void read_secure() {
    secure_.async_read_some(boost::asio::buffer(inbound_), then(&Pump::write_plain));
  }

  void write_plain(const error_code& error, std::size_t size) {
    if (error) return plan_.done ? explain(error) : finish();
    if (plan_.done && !hand_over()) return;
    boost::asio::async_write(plain_, boost::asio::buffer(inbound_.data(), size),
                             then(&Pump::wrote_plain));
  }

  void wrote_plain(const error_code& error, std::size_t) {
    if (!error) read_secure();  // else the read of plain bytes sees it too
  }

  void read_plain() {
    plain_.async_read_some(boost::asio::buffer(outbound_), then(&Pump::write_secure));
  }

  void write_secure(const error_code& error, std::size_t size) {
    if (error) return say_goodbye();
    boost::asio::async_write(secure_, boost::asio::buffer(outbound_.data(), size),
                             then(&Pump::wrote_secure));
  }

  void wrote_secure(const error_code& error, std::size_t) { error ? finish() : read_plain(); }

  // ---- the end

  void say_goodbye() {
    within(kGoodbye, &Pump::finish);
    secure_.async_shutdown(then(&Pump::said_goodbye));
  }

  void said_goodbye(const error_code&) { finish(); }

  void fail(TlsResult result) {
    tell(std::move(result));
    finish();
  }

  void tell(TlsResult result) {
    const auto done = std::exchange(plan_.done, nullptr);
    if (done) done(std::move(result));
  }

  void finish() {
    if (ended_) return;
    ended_ = true;
    plan_.done = nullptr;
    timer_.cancel();
    error_code ignored;
    secure_.next_layer().close(ignored);
    plain_.close(ignored);
    const auto last = std::move(keep_);
    const auto ended = std::move(plan_.ended);
    if (ended) ended();
  }

  std::shared_ptr<boost::asio::ssl::context> context_;
  Plan plan_;
  File raw_;
  Secure secure_;
  boost::asio::local::stream_protocol::socket plain_;
  boost::asio::steady_timer timer_;
  int purpose_ = 0;
  std::array<char, kChunk> inbound_{};
  std::array<char, kChunk> outbound_{};
  std::shared_ptr<Pump> keep_;
  bool ended_ = false;
};

void Pump::begin() {
  if (ended_) return;
  keep_ = shared_from_this();
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(raw_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  error_code error;
  secure_.next_layer().assign(Generic(address.ss_family, 0), raw_.get(), error);
  if (error) return fail({TlsResult::Kind::kBroken, {}, error.message()});
  raw_.release();
  within(plan_.timeout, &Pump::too_slow);
  if (!plan_.is_server) return shake_hands();
  secure_.next_layer().async_wait(Generic::socket::wait_read, then(&Pump::hear_first_byte));
}

}  // namespace

std::shared_ptr<TlsPump> TlsPump::start(boost::asio::io_context& io,
                                        std::shared_ptr<boost::asio::ssl::context> context,
                                        File socket, Plan plan) {
  auto pump = std::make_shared<Pump>(io, std::move(context), std::move(socket), std::move(plan));
  // Through the loop: whoever starts it keeps it first.
  boost::asio::post(io, [pump] { pump->begin(); });
  return pump;
}

}  // namespace muster::transport
