// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/dialer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/transport/address.h"

namespace muster::transport {
namespace {

using Clock = std::chrono::steady_clock;
using boost::asio::posix::stream_descriptor;

constexpr std::size_t kMaxAddresses = 16;
constexpr int kMaxResolvers = 16;        // threads that wait for a resolver at one time
constexpr std::size_t kFrameHeader = 9;  // of HTTP/2
constexpr std::size_t kPeek = 64;

// A client's connection preface and an empty SETTINGS frame (RFC 9113, section 3.4).
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

struct Target {
  sockaddr_storage address{};
  socklen_t size = 0;
};

std::atomic<int> resolvers{0};

std::vector<Target> targets_of(const addrinfo* list) {
  std::vector<Target> targets;
  for (; list != nullptr && targets.size() < kMaxAddresses; list = list->ai_next) {
    Target target;
    target.size = static_cast<socklen_t>(list->ai_addrlen);
    std::memcpy(&target.address, list->ai_addr, list->ai_addrlen);
    targets.push_back(target);
  }
  return targets;
}

// Returns getaddrinfo's error. Blocks unless `flags` has AI_NUMERICHOST.
int look_up(const Endpoint& endpoint, int flags, std::vector<Target>& out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error != 0) return error;
  out = targets_of(list);
  ::freeaddrinfo(list);
  return 0;
}

enum class FirstBytes : std::uint8_t { kHttp2, kStranger, kTooFew };

FirstBytes judge(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  constexpr unsigned char kSettings = 4;
  if (bytes.size() > 3 && byte(3) != kSettings) return FirstBytes::kStranger;
  if (bytes.size() < kFrameHeader) return FirstBytes::kTooFew;
  const bool on_stream_0 = byte(5) == 0 && byte(6) == 0 && byte(7) == 0 && byte(8) == 0;
  const bool is_short = byte(0) == 0;
  return on_stream_0 && is_short && byte(4) == 0 ? FirstBytes::kHttp2 : FirstBytes::kStranger;
}

std::string name_stranger(std::string_view bytes) {
  if (bytes.rfind("HTTP/", 0) == 0) return "is a web server, not Muster";
  if (bytes.rfind("SSH-", 0) == 0) return "is an SSH server, not Muster";
  if (bytes == kTlsAlert) return "wants TLS (--tls-cert, --tls-key, --tls-ca)";
  return "answers, but does not speak Muster's protocol";
}

}  // namespace

std::string to_text(const Endpoint& endpoint) {
  if (!endpoint.unix_path.empty()) return endpoint.unix_path;
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

struct Dialer::State : std::enable_shared_from_this<Dialer::State> {
  State(boost::asio::io_context& io_context, Endpoint to, std::shared_ptr<Tls> with,
        Duration timeout, Done callback)
      : io(io_context),
        endpoint(std::move(to)),
        tls(std::move(with)),
        done(std::move(callback)),
        deadline(Clock::now() + timeout),
        timer(io) {}

  // ---- 1. the name

  void begin() {
    if (!endpoint.unix_path.empty()) return begin_unix();
    if (look_up(endpoint, AI_NUMERICHOST, targets) == 0) return next_target();
    if (endpoint.host.empty()) {
      return finish(Dialed::Kind::kNothing, to_text(endpoint) + ": no host is given");
    }
    if (resolvers.load() >= kMaxResolvers) {
      return finish(Dialed::Kind::kSilent, "the resolver does not answer for " + endpoint.host);
    }
    at(deadline, [this] {
      finish(Dialed::Kind::kSilent, "the resolver did not answer for " + endpoint.host);
    });
    try {
      std::thread(&State::resolve, endpoint, open_door(), weak_from_this()).detach();
    } catch (const std::system_error& error) {
      finish(Dialed::Kind::kNothing, std::string("no thread for the resolver: ") + error.what());
    }
  }

  // On a thread of its own.
  static void resolve(Endpoint to, std::shared_ptr<LoopDoor> loop, std::weak_ptr<State> weak) {
    ++resolvers;
    std::vector<Target> found;
    const int error = look_up(to, 0, found);
    --resolvers;
    loop->post([weak = std::move(weak), error, found = std::move(found)]() mutable {
      if (const auto self = weak.lock()) self->resolved(error, std::move(found));
    });
  }

  void begin_unix() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (endpoint.unix_path.size() >= sizeof address.sun_path) {
      return finish(Dialed::Kind::kNothing, endpoint.unix_path + ": too long for a socket");
    }
    std::memcpy(address.sun_path, endpoint.unix_path.c_str(), endpoint.unix_path.size());
    Target target;
    std::memcpy(&target.address, &address, sizeof address);
    target.size = sizeof address;
    targets.push_back(target);
    next_target();
  }

  void resolved(int error, std::vector<Target> found) {
    if (finished) return;
    if (error != 0) {
      return finish(Dialed::Kind::kNothing, endpoint.host + ": " + ::gai_strerror(error));
    }
    targets = std::move(found);
    next_target();
  }

  // ---- 2. the connection

  void next_target() {
    if (next == targets.size()) return finish(failure, failure_text);
    const Target target = targets[next++];
    addr = numeric_address(target.address);
    File fd(::socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fail_target(Dialed::Kind::kNothing, errno);
    if (target.address.ss_family != AF_UNIX) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    const int connected =
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target.address), target.size);
    // EAGAIN: a Unix socket whose backlog is full.
    if (connected != 0 && errno != EINPROGRESS) return fail_target(Dialed::Kind::kNothing, errno);
    socket.emplace(io, fd.release());
    const auto left = deadline - Clock::now();
    at(Clock::now() + left / static_cast<int>(targets.size() - next + 1),
       [this] { fail_target(Dialed::Kind::kSilent, ETIMEDOUT); });
    on_ready(stream_descriptor::wait_write, [this] { connected_or_not(); });
  }

  void connected_or_not() {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket->native_handle(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return fail_target(Dialed::Kind::kNothing, error);
    if (tls && endpoint.unix_path.empty()) return begin_tls();
    at(Clock::now() + (deadline - Clock::now()) / 2, [this] { provoke(); });
    listen();
  }

  // The deadline is kept by the handshake itself: it knows how far it came.
  void begin_tls() {
    ++last_purpose;
    timer.cancel();
    File plain(socket->release());
    socket.reset();
    const auto left = std::chrono::duration_cast<Duration>(deadline - Clock::now());
    tls->connect(open_door(), std::move(plain), endpoint.host, left,
                 [weak = weak_from_this()](TlsResult result) {
                   if (const auto self = weak.lock()) self->secured(std::move(result));
                 });
  }

  void secured(TlsResult result) {
    if (finished) return;
    using Kind = TlsResult::Kind;
    const std::string text = peer_text() + ": " + result.text;
    switch (result.kind) {
      case Kind::kUntrusted: return finish(Dialed::Kind::kUntrusted, text);
      case Kind::kNotTls: return finish(Dialed::Kind::kStranger, text);
      case Kind::kBroken: return finish(Dialed::Kind::kNothing, text);
      case Kind::kConnected: break;
    }
    socket.emplace(io, result.file.release());
    at(deadline,
       [this] { finish(Dialed::Kind::kSilent, peer_text() + ": did not answer in time"); });
    listen();
  }

  void fail_target(Dialed::Kind kind, int error) {
    failure = kind;
    failure_text = peer_text() + ": " + std::generic_category().message(error);
    socket.reset();
    next_target();
  }

  // ---- 3. the first bytes

  void listen() {
    on_ready(stream_descriptor::wait_read, [this] { look(); });
  }

  void look() {
    std::array<char, kPeek> buffer{};
    const ssize_t got =
        ::recv(socket->native_handle(), buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return listen();
    if (got <= 0) {
      const bool is_reset = got < 0;
      return finish(Dialed::Kind::kNothing,
                    peer_text() + (is_reset ? ": connection reset" : ": closed the connection"));
    }
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    switch (judge(bytes)) {
      case FirstBytes::kHttp2:
        if (provoked) break;  // a preface was spent on it: the next attempt may have it
        return hand_over();
      case FirstBytes::kStranger:
        return finish(Dialed::Kind::kStranger, peer_text() + " " + name_stranger(bytes));
      case FirstBytes::kTooFew: break;
    }
    // Nothing more can be learned from what is there: wait for the deadline.
    at(deadline,
       [this] { finish(Dialed::Kind::kSilent, peer_text() + ": did not answer in time"); });
  }

  void provoke() {
    provoked = true;
    // A failed write shows as an error or end of file on the next read.
    (void)::send(socket->native_handle(), kPreface.data(), kPreface.size(),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    at(deadline, [this] {
      finish(Dialed::Kind::kSilent, peer_text() + ": takes connections but does not answer");
    });
  }

  void hand_over() {
    Dialed dialed;
    dialed.kind = Dialed::Kind::kConnected;
    dialed.file = File(socket->release());
    dialed.addr = addr;
    complete(std::move(dialed));
  }

  // ---- plumbing

  void finish(Dialed::Kind kind, std::string text) {
    Dialed dialed;
    dialed.kind = kind;
    dialed.addr = addr;
    dialed.text = std::move(text);
    complete(std::move(dialed));
  }

  void complete(Dialed dialed) {
    if (finished) return;
    const Done callback = std::move(done);
    abandon();
    callback(std::move(dialed));
  }

  void abandon() {
    finished = true;
    timer.cancel();
    socket.reset();
    if (door) door->close();
  }

  // For other threads, while there is something left for them to say.
  const std::shared_ptr<LoopDoor>& open_door() {
    if (!door) door = std::make_shared<LoopDoor>(io);
    return door;
  }

  // A timer that rang just before it was set anew must not act for the new purpose.
  template <class Then>
  void at(Clock::time_point when, Then then) {
    timer.expires_at(when);
    timer.async_wait([weak = weak_from_this(), then,
                      purpose = ++last_purpose](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (self && !error && !self->finished && self->last_purpose == purpose) then();
    });
  }

  // `attempt` tells a wake-up of an abandoned socket from one of the present.
  template <class Then>
  void on_ready(stream_descriptor::wait_type what, Then then) {
    socket->async_wait(what, [weak = weak_from_this(), then,
                              attempt = next](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (self && !error && !self->finished && self->next == attempt) then();
    });
  }

  std::string peer_text() const {
    if (!endpoint.unix_path.empty() || addr == endpoint.host) return to_text(endpoint);
    return to_text(endpoint) + " (" + addr + ")";
  }

  boost::asio::io_context& io;
  Endpoint endpoint;
  std::shared_ptr<Tls> tls;
  Done done;
  Clock::time_point deadline;
  boost::asio::steady_timer timer;
  int last_purpose = 0;
  std::shared_ptr<LoopDoor> door;
  std::vector<Target> targets;
  std::size_t next = 0;
  std::optional<stream_descriptor> socket;
  std::string addr;
  Dialed::Kind failure = Dialed::Kind::kNothing;
  std::string failure_text = "the name has no address";
  bool provoked = false;
  bool finished = false;
};

std::unique_ptr<Dialer> Dialer::start(boost::asio::io_context& io, Endpoint endpoint,
                                      std::shared_ptr<Tls> tls, Duration timeout, Done done) {
  auto state =
      std::make_shared<State>(io, std::move(endpoint), std::move(tls), timeout, std::move(done));
  boost::asio::post(io, [weak = std::weak_ptr<State>(state)] {
    const auto self = weak.lock();
    if (self && !self->finished) self->begin();
  });
  return std::unique_ptr<Dialer>(new Dialer(std::move(state)));
}

Dialer::~Dialer() {
  if (!state_->finished) state_->abandon();
}

}  // namespace muster::transport
