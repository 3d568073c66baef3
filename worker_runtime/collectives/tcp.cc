// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/collectives/tcp.h"

#include <array>
#include <exception>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "proto/base/check.h"
#include "worker_runtime/collectives/header.h"

namespace muster::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// gloo's collectives take the prefixes 0x01 to 0x08 of the slot number.
constexpr std::uint64_t kSlotPrefix = std::uint64_t{0x4d} << 56U;

// Thrown into gloo by the adapter and caught around it: our way to keep the store's own words.
class StoreFailure : public std::exception {
 public:
  explicit StoreFailure(absl::Status status) : status_(std::move(status)) {}
  const char* what() const noexcept override { return "store failure"; }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// gloo's view of the store. Keys carry the generation, so that an address of a dead generation is
// never handed out.
class StoreAdapter : public ::gloo::rendezvous::Store {
 public:
  StoreAdapter(BootstrapStore& store, std::int64_t generation, Clock::time_point deadline)
      : store_(store), prefix_(absl::StrCat("mesh/", generation, "/")), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const absl::Status status = store_.set(prefix_ + key, std::string(data.begin(), data.end()));
    if (!status.ok()) throw StoreFailure(status);
  }

  std::vector<char> get(const std::string& key) override {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline_ - Clock::now());
    const absl::StatusOr<std::string> value =
        store_.get(prefix_ + key, std::max(left, Milliseconds(1)));
    if (!value.ok()) {
      throw StoreFailure(absl::Status(
          value.status().code(),
          absl::StrCat("waiting for key ", prefix_, key, ": ", value.status().message())));
    }
    return {value->begin(), value->end()};
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys)
      get(key);
  }
  void wait(const std::vector<std::string>& keys, const Milliseconds&) override { wait(keys); }

 private:
  BootstrapStore& store_;
  std::string prefix_;
  Clock::time_point deadline_;
};

class TcpGroup : public Collectives {
 public:
  TcpGroup(std::shared_ptr<::gloo::rendezvous::Context> context, const TcpOptions& options)
      : context_(std::move(context)), options_(options) {
    const auto size = static_cast<std::size_t>(options.size);
    headers_out_.resize(size);
    headers_in_.resize(size);
    for (std::size_t peer = 0; peer < size; ++peer) {
      header_send_.push_back(
          context_->createUnboundBuffer(headers_out_[peer].data(), kHeaderBytes));
      header_recv_.push_back(context_->createUnboundBuffer(headers_in_[peer].data(), kHeaderBytes));
    }
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::int64_t generation() const override { return options_.generation; }
  int lost_peer() const override { return lost_peer_; }

  absl::Status exchange(const OperationKey& key, std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> recv) override {
    MUSTER_CHECK(send.size() == static_cast<std::size_t>(size()));
    MUSTER_CHECK(recv.size() == send.size());
    if (!poisoned_.ok()) return poisoned_;
    const Clock::time_point deadline = Clock::now() + options_.deadline;
    absl::Status status = exchange_headers(key, send, recv, deadline);
    if (status.ok()) status = exchange_payload(send, recv, deadline);
    if (status.ok()) {
      ++sequence_;
    } else {
      poisoned_ = status;
    }
    return status;
  }

 private:
  using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

  std::uint64_t slot(bool payload) const {
    return kSlotPrefix | ((sequence_ * 2 + (payload ? 1 : 0)) & 0x00ffffffffffffffU);
  }

  absl::Status exchange_headers(const OperationKey& key,
                                std::span<const std::span<const std::byte>> send,
                                std::span<const std::span<std::byte>> recv,
                                Clock::time_point deadline) {
    std::vector<OperationHeader> mine(send.size());
    absl::Status status = for_each_peer([&](int peer, std::size_t index) {
      mine[index] =
          make_header(key, generation(), sequence_, send[index].size(), recv[index].size());
      headers_out_[index] = encode(mine[index]);
      header_recv_[index]->recv(peer, slot(false));
      header_send_[index]->send(peer, slot(false));
    });
    if (!status.ok()) return status;
    status =
        for_each_peer([&](int, std::size_t index) { wait(*header_recv_[index], true, deadline); });
    if (!status.ok()) return status;
    status =
        for_each_peer([&](int, std::size_t index) { wait(*header_send_[index], false, deadline); });
    if (!status.ok()) return status;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const auto index = static_cast<std::size_t>(peer);
      status = compare(mine[index], decode(headers_in_[index].data()), rank(), peer);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status exchange_payload(std::span<const std::span<const std::byte>> send,
                                std::span<const std::span<std::byte>> recv,
                                Clock::time_point deadline) {
    std::vector<Buffer> outgoing(send.size());
    std::vector<Buffer> incoming(recv.size());
    absl::Status status = for_each_peer([&](int peer, std::size_t index) {
      if (!recv[index].empty()) {
        incoming[index] = context_->createUnboundBuffer(recv[index].data(), recv[index].size());
        incoming[index]->recv(peer, slot(true));
      }
      if (!send[index].empty()) {
        // gloo's buffers are not const; a buffer used for sending only is never written to.
        outgoing[index] = context_->createUnboundBuffer(const_cast<std::byte*>(send[index].data()),
                                                        send[index].size());  // NOLINT
        outgoing[index]->send(peer, slot(true));
      }
    });
    if (!status.ok()) return status;
    status = for_each_peer([&](int, std::size_t index) {
      if (incoming[index]) wait(*incoming[index], true, deadline);
    });
    if (!status.ok()) return status;
    return for_each_peer([&](int, std::size_t index) {
      if (outgoing[index]) wait(*outgoing[index], false, deadline);
    });
  }

  static void wait(::gloo::transport::UnboundBuffer& buffer, bool receiving,
                   Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    const Milliseconds timeout = std::max(left, Milliseconds(1));
    if (receiving) {
      buffer.waitRecv(timeout);
    } else {
      buffer.waitSend(timeout);
    }
  }

  // Runs `act` for every other rank and turns what gloo throws into a status that names it.
  template <typename Act>
  absl::Status for_each_peer(Act act) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      try {
        act(peer, static_cast<std::size_t>(peer));
      } catch (const std::exception& error) {
        return failed(peer, error.what());
      }
    }
    return absl::OkStatus();
  }

  absl::Status failed(int peer, const std::string& words) {
    if (absl::StrContains(words, "Timed out")) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", peer, " made no progress within ", options_.deadline.count(),
                       " ms (seen by rank ", rank(), " at sequence ", sequence_, ")"));
    }
    lost_peer_ = peer;
    return absl::UnavailableError(absl::StrCat("rank ", peer, " is gone (seen by rank ", rank(),
                                               " at sequence ", sequence_, "): ", words));
  }

  std::shared_ptr<::gloo::rendezvous::Context> context_;
  TcpOptions options_;
  std::vector<std::array<std::byte, kHeaderBytes>> headers_out_;
  std::vector<std::array<std::byte, kHeaderBytes>> headers_in_;
  std::vector<Buffer> header_send_;  // after the arrays they point into
  std::vector<Buffer> header_recv_;
  std::uint64_t sequence_ = 0;
  int lost_peer_ = -1;
  absl::Status poisoned_;
};

}  // namespace

absl::StatusOr<std::string> address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), "9", &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
  }
  std::string address;
  for (const addrinfo* entry = found; entry != nullptr && address.empty(); entry = entry->ai_next) {
    const int fd = socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    std::array<char, NI_MAXHOST> text{};
    auto* generic = reinterpret_cast<sockaddr*>(&own);
    if (connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(fd, generic, &length) == 0 &&
        getnameinfo(generic, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
      address = text.data();
    }
    close(fd);
  }
  freeaddrinfo(found);
  if (address.empty()) {
    return absl::UnavailableError(absl::StrCat("this host has no route to ", host));
  }
  return address;
}

absl::StatusOr<std::unique_ptr<Collectives>> connect_tcp(const TcpOptions& options,
                                                         BootstrapStore& store) {
  MUSTER_CHECK(options.rank >= 0 && options.rank < options.size);
  std::string address = options.address;
  if (address.empty()) {
    absl::StatusOr<std::string> own = address_towards(options.route_to);
    if (!own.ok()) return own.status();
    address = *std::move(own);
  }
  const Clock::time_point deadline = Clock::now() + options.connect_timeout;
  try {
    ::gloo::transport::tcp::attr attributes(address.c_str());
    std::shared_ptr<::gloo::transport::Device> device =
        ::gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<::gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.connect_timeout);
    StoreAdapter adapter(store, options.generation, deadline);
    context->connectFullMesh(adapter, device);
    context->setTimeout(options.deadline);
    return std::make_unique<TcpGroup>(std::move(context), options);
  } catch (const StoreFailure& failure) {
    return failure.status();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("rank ", options.rank,
                                               " could not connect to its peers from ", address,
                                               ": ", error.what()));
  }
}

}  // namespace muster::runtime
