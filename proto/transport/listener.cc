// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/listener.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/transport/address.h"
#include "proto/transport/file.h"

namespace muster::transport {
namespace {

constexpr int kBacklog = 4096;
constexpr int kAcceptsAtOnce = 64;  // then others on the loop get their turn
constexpr auto kOutOfDescriptorsPause = std::chrono::milliseconds(100);

absl::Status bind_error(const std::string& what, int error) {
  const std::string text = what + ": " + std::generic_category().message(error);
  switch (error) {
    case EADDRINUSE: return absl::AlreadyExistsError(text);
    case EADDRNOTAVAIL: return absl::NotFoundError(text);
    case EACCES:
    case EPERM: return absl::PermissionDeniedError(text);
    default: return absl::UnavailableError(text);
  }
}

// One listening TCP socket, or the errno of what failed.
int listen_at(const addrinfo& where, bool both_families, File& out) {
  File fd(::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  const int on = 1;
  const int off = 0;
  // A restarted server must get its port back while old connections are in TIME_WAIT; a port that
  // is being listened on is refused all the same. SO_REUSEPORT stays off.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (where.ai_family == AF_INET6) {
    const int& only = both_families ? off : on;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  if (::bind(fd.get(), where.ai_addr, where.ai_addrlen) != 0) return errno;
  if (::listen(fd.get(), kBacklog) != 0) return errno;
  out = std::move(fd);
  return 0;
}

sockaddr_storage local_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

// Only this user and root may come in through a socket file.
bool is_own_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

absl::Status private_directory(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return bind_error(directory, errno);
  }
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) return bind_error(directory, errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077U) != 0) {
    return absl::FailedPreconditionError(directory +
                                         ": must be a directory of this user with mode 0700");
  }
  return absl::OkStatus();
}

}  // namespace

struct Listener::State : std::enable_shared_from_this<Listener::State> {
  State(boost::asio::io_context& io, File socket, OnConnection callback)
      : descriptor(io, socket.release()), pause(io), on_connection(std::move(callback)) {}

  void wait() {
    descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                          [weak = weak_from_this()](const boost::system::error_code& error) {
                            const auto self = weak.lock();
                            if (self && !error) self->accept_some();
                          });
  }

  void accept_some() {
    for (int i = 0; i < kAcceptsAtOnce && open; ++i) {
      sockaddr_storage peer{};
      socklen_t size = sizeof peer;
      File fd(::accept4(descriptor.native_handle(), reinterpret_cast<sockaddr*>(&peer), &size,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          return try_later();
        }
        continue;  // this one connection failed (ECONNABORTED and the like)
      }
      if (!path.empty()) {
        if (is_own_user(fd.get())) on_connection(fd.release(), "");
        continue;
      }
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      on_connection(fd.release(), numeric_address(peer));
    }
    if (open) wait();
  }

  // Out of descriptors: the connection stays in the backlog, and the loop must not spin on it.
  void try_later() {
    pause.expires_after(kOutOfDescriptorsPause);
    pause.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (self && !error) self->accept_some();
    });
  }

  void close() {
    open = false;
    boost::system::error_code ignored;
    descriptor.close(ignored);
    pause.cancel();
    if (!path.empty()) ::unlink(path.c_str());
  }

  boost::asio::posix::stream_descriptor descriptor;
  boost::asio::steady_timer pause;
  OnConnection on_connection;
  std::string path;  // Unix socket
  bool open = true;
};

absl::StatusOr<std::unique_ptr<Listener>> Listener::tcp(boost::asio::io_context& io,
                                                        const std::string& host, int port,
                                                        OnConnection on_connection) {
  const std::string what = (host.empty() ? "port " : host + " port ") + std::to_string(port);
  if (port < 0 || port > 65535) return absl::InvalidArgumentError(what + ": no such port");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (host.empty()) hints.ai_family = AF_INET6;  // with IPv4 mapped in
  addrinfo* list = nullptr;
  const auto resolve = [&] {
    return ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                         &hints, &list);
  };
  const int unknown = resolve();
  if (unknown != 0) return absl::NotFoundError(what + ": " + ::gai_strerror(unknown));

  File socket;
  int error = 0;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    error = listen_at(*at, host.empty(), socket);
    if (error == 0) break;
  }
  ::freeaddrinfo(list);
  if (!socket && host.empty() && (error == EAFNOSUPPORT || error == EADDRNOTAVAIL)) {
    hints.ai_family = AF_INET;  // a kernel without IPv6
    list = nullptr;
    if (resolve() == 0) {
      error = listen_at(*list, false, socket);
      ::freeaddrinfo(list);
    }
  }
  if (!socket) return bind_error(what, error);
  auto state = std::make_shared<State>(io, std::move(socket), std::move(on_connection));
  state->wait();
  return std::unique_ptr<Listener>(new Listener(std::move(state)));
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::unix_socket(boost::asio::io_context& io,
                                                                const std::string& path,
                                                                OnConnection on_connection) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(path + ": a socket's path has 1 to " +
                                      std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (const absl::Status status = private_directory(path); !status.ok()) return status;

  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  File socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return bind_error(path, errno);
  if (::bind(socket.get(), generic, sizeof address) != 0) {
    if (errno != EADDRINUSE) return bind_error(path, errno);
    const File probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return bind_error(path, errno);
    const bool is_dead = ::connect(probe.get(), generic, sizeof address) != 0 &&
                         (errno == ECONNREFUSED || errno == ENOENT);
    if (!is_dead) return bind_error(path, EADDRINUSE);
    ::unlink(path.c_str());
    if (::bind(socket.get(), generic, sizeof address) != 0) return bind_error(path, errno);
  }
  if (::listen(socket.get(), kBacklog) != 0) return bind_error(path, errno);
  auto state = std::make_shared<State>(io, std::move(socket), std::move(on_connection));
  state->path = path;
  state->wait();
  return std::unique_ptr<Listener>(new Listener(std::move(state)));
}

Listener::~Listener() {
  state_->close();
}

int Listener::port() const {
  return port_of(local_address(state_->descriptor.native_handle()));
}

std::string Listener::address() const {
  return numeric_address(local_address(state_->descriptor.native_handle()));
}

}  // namespace muster::transport
