// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/socket_group.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "proto/base/check.h"
#include "worker_runtime/collectives/header.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

// What one operation moves between this rank and one peer: header, then payload, both ways.
struct Talk {
  std::array<std::byte, kHeaderBytes> header_out, header_in;
  OperationHeader mine;
  std::span<const std::byte> send;
  std::span<std::byte> recv;
  std::size_t sent = 0;  // header included
  std::size_t received = 0;
  bool compared = false;
  bool writes() const { return sent < kHeaderBytes + send.size(); }
  bool reads() const { return received < kHeaderBytes + recv.size(); }
};

class SocketGroup final : public Collectives {
 public:
  SocketGroup(int rank, std::vector<int> sockets, std::int64_t generation,
              std::chrono::milliseconds deadline)
      : rank_(rank), sockets_(std::move(sockets)), generation_(generation), deadline_(deadline) {
    for (const int socket : sockets_)
      if (socket >= 0) ::fcntl(socket, F_SETFL, O_NONBLOCK);
  }
  ~SocketGroup() override {
    for (const int socket : sockets_)
      if (socket >= 0) ::close(socket);
  }
  SocketGroup(const SocketGroup&) = delete;
  SocketGroup& operator=(const SocketGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sockets_.size()); }
  std::int64_t generation() const override { return generation_; }
  int lost_peer() const override { return lost_peer_; }

  absl::Status exchange(const OperationKey& key, std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> recv) override {
    MUSTER_CHECK(send.size() == sockets_.size());
    MUSTER_CHECK(recv.size() == sockets_.size());
    if (!poisoned_.ok()) return poisoned_;
    std::vector<Talk> talks(sockets_.size());
    for (std::size_t peer = 0; peer < talks.size(); ++peer) {
      if (static_cast<int>(peer) == rank_) continue;
      Talk& talk = talks[peer];
      talk.send = send[peer];
      talk.recv = recv[peer];
      talk.mine = make_header(key, generation_, sequence_, talk.send.size(), talk.recv.size());
      talk.header_out = encode(talk.mine);
    }
    poisoned_ = run(talks);
    ++sequence_;
    return poisoned_;
  }

 private:
  absl::Status run(std::vector<Talk>& talks) {
    while (true) {
      std::vector<pollfd> waits;
      std::vector<std::size_t> peers;
      for (std::size_t peer = 0; peer < talks.size(); ++peer) {
        if (static_cast<int>(peer) == rank_) continue;
        const short events = static_cast<short>((talks[peer].reads() ? POLLIN : 0) |
                                                (talks[peer].writes() ? POLLOUT : 0));
        if (events == 0) continue;
        waits.push_back({sockets_[peer], events, 0});
        peers.push_back(peer);
      }
      if (waits.empty()) return absl::OkStatus();
      const int ready = ::poll(waits.data(), waits.size(), static_cast<int>(deadline_.count()));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) {
        return absl::DeadlineExceededError("rank " + std::to_string(peers.front()) +
                                           " did not come to operation " +
                                           std::to_string(sequence_));
      }
      for (std::size_t i = 0; i < waits.size(); ++i) {
        if (waits[i].revents == 0) continue;
        absl::Status status = step(static_cast<int>(peers[i]), talks[peers[i]]);
        if (!status.ok()) return status;
      }
    }
  }

  absl::Status step(int peer, Talk& talk) {
    const int socket = sockets_[static_cast<std::size_t>(peer)];
    if (talk.writes()) {
      const bool head = talk.sent < kHeaderBytes;
      const std::span<const std::byte> all =
          head ? std::span<const std::byte>(talk.header_out) : talk.send;
      const std::size_t at = head ? talk.sent : talk.sent - kHeaderBytes;
      const ssize_t moved = ::send(socket, all.data() + at, all.size() - at, MSG_NOSIGNAL);
      if (moved < 0 && errno != EAGAIN && errno != EINTR) return gone(peer);
      if (moved > 0) talk.sent += static_cast<std::size_t>(moved);
    }
    if (!talk.reads()) return absl::OkStatus();
    const bool head = talk.received < kHeaderBytes;
    const std::span<std::byte> all = head ? std::span<std::byte>(talk.header_in) : talk.recv;
    const std::size_t at = head ? talk.received : talk.received - kHeaderBytes;
    const ssize_t moved = ::recv(socket, all.data() + at, all.size() - at, 0);
    if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) return gone(peer);
    if (moved > 0) talk.received += static_cast<std::size_t>(moved);
    if (talk.compared || talk.received < kHeaderBytes) return absl::OkStatus();
    talk.compared = true;
    return compare(talk.mine, decode(talk.header_in.data()), rank_, peer);
  }

  absl::Status gone(int peer) {
    lost_peer_ = peer;
    return absl::UnavailableError("rank " + std::to_string(peer) + " is gone (seen by rank " +
                                  std::to_string(rank_) + " at sequence " +
                                  std::to_string(sequence_) + ")");
  }

  int rank_;
  std::vector<int> sockets_;
  std::int64_t generation_;
  std::chrono::milliseconds deadline_;
  std::uint64_t sequence_ = 0;
  int lost_peer_ = -1;
  absl::Status poisoned_;
};

}  // namespace

std::unique_ptr<Collectives> make_socket_group(int rank, std::vector<int> sockets,
                                               std::int64_t generation,
                                               std::chrono::milliseconds deadline) {
  return std::make_unique<SocketGroup>(rank, std::move(sockets), generation, deadline);
}

std::vector<std::vector<int>> make_sockets(int size) {
  const auto count = static_cast<std::size_t>(size);
  std::vector<std::vector<int>> sockets(count, std::vector<int>(count, -1));
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count; ++b) {
      std::array<int, 2> ends{-1, -1};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
      sockets[a][b] = ends[0];
      sockets[b][a] = ends[1];
    }
  }
  return sockets;
}

}  // namespace muster::runtime::cuda::gpu_check
