// SPDX-License-Identifier: Apache-2.0
//
// The hosting rules over real sockets: probes and servers of one process on loopback addresses.
#include "launcher/commands/endpoint_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

// A listening socket that says nothing, on a port of the kernel's choice.
class Stranger {
 public:
  explicit Stranger(const char* address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    inet_pton(AF_INET, address, &name.sin_addr);
    socklen_t length = sizeof name;
    auto* raw = reinterpret_cast<sockaddr*>(&name);
    REQUIRE(bind(fd_, raw, length) == 0);
    REQUIRE(listen(fd_, 8) == 0);
    REQUIRE(getsockname(fd_, raw, &length) == 0);
    port_ = ntohs(name.sin_port);
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  std::uint16_t port() const { return port_; }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

struct World {
  std::unique_ptr<rendezvous::RendezvousServer> server(const std::string& instance) {
    rendezvous::ServerOptions options;
    options.machine.server_instance = instance;
    options.seed = 1;
    return std::make_unique<rendezvous::RendezvousServer>(io, std::move(options));
  }

  ProbeOptions options(std::uint16_t port, const std::string& instance) {
    ProbeOptions probe;
    probe.endpoint = {"127.0.0.2", port};
    probe.join_timeout = 30s;
    probe.server_instance = instance;
    probe.make_server = [this, instance] { return server(instance); };
    probe.say = [this](const std::string& line) { lines.push_back(line); };
    return probe;
  }

  ProbeResult find(ProbeOptions chosen) {
    std::optional<ProbeResult> found;
    EndpointProbe probe(io, std::move(chosen));
    probe.start([&](ProbeResult result) {
      found = std::move(result);
      io.stop();
    });
    io.restart();
    io.run();
    REQUIRE(found);
    return std::move(*found);
  }

  // A port of 127.0.0.2 that nobody has now.
  static std::uint16_t free_port() { return Stranger("127.0.0.2").port(); }

  boost::asio::io_context io{1};
  std::vector<std::string> lines;
};

}  // namespace

TEST_CASE("the owner hosts, the next one joins") {
  World world;
  const std::uint16_t port = World::free_port();
  const ProbeResult first = world.find(world.options(port, "first"));
  INFO(first.text);
  REQUIRE(first.server != nullptr);
  CHECK(first.reached_addr == "127.0.0.2");
  const ProbeResult second = world.find(world.options(port, "second"));
  CHECK(second.server == nullptr);
  CHECK(second.exit_code == 0);
  CHECK(second.reached_addr == "127.0.0.2");
}

TEST_CASE("a server that appears while we would listen is joined") {
  World world;
  const std::uint16_t port = World::free_port();
  const auto other = world.server("other");
  ProbeOptions options = world.options(port, "ours");
  options.make_server = [&] {
    CHECK(other->listen("127.0.0.2", port).ok());
    return world.server("ours");
  };
  const ProbeResult result = world.find(std::move(options));
  CHECK(result.server == nullptr);
  CHECK(result.exit_code == 0);
}

TEST_CASE("who reaches another instance than its own gives way") {
  World world;
  ProbeOptions options = world.options(World::free_port(), "ours");
  options.make_server = [&] { return world.server("somebody else's"); };
  const ProbeResult result = world.find(std::move(options));
  CHECK(result.server == nullptr);
  CHECK(result.exit_code == 0);
}

TEST_CASE("a server that cannot be made for a moment is made after another look") {
  World world;
  ProbeOptions options = world.options(World::free_port(), "ours");
  int tries = 0;
  options.make_server = [&]() -> absl::StatusOr<std::unique_ptr<rendezvous::RendezvousServer>> {
    if (++tries < 3) return absl::AbortedError("journal.db is in use by another process");
    return world.server("ours");
  };
  const ProbeResult result = world.find(std::move(options));
  CHECK(result.server != nullptr);
  CHECK(tries == 3);
}

TEST_CASE("who has what a server needs is joined when it answers") {
  World world;
  auto other = world.server("other");
  const std::uint16_t port = World::free_port();
  ProbeOptions options = world.options(port, "ours");
  options.make_server = [&]() -> absl::StatusOr<std::unique_ptr<rendezvous::RendezvousServer>> {
    CHECK(other->listen("127.0.0.2", port).ok());
    return absl::AbortedError("journal.db is in use by another process");
  };
  const ProbeResult result = world.find(std::move(options));
  CHECK(result.server == nullptr);
  CHECK(result.exit_code == 0);
}

TEST_CASE("what holds the port without speaking Muster is named at the end") {
  World world;
  const Stranger stranger("127.0.0.2");
  ProbeOptions options = world.options(stranger.port(), "ours");
  options.join_timeout = 300ms;
  options.report_every = 50ms;
  const ProbeResult result = world.find(std::move(options));
  CHECK(result.server == nullptr);
  CHECK(result.exit_code == 75);
  INFO(result.text);
  CHECK(result.text.find(cat("127.0.0.2:", stranger.port())) != std::string::npos);
  CHECK_FALSE(world.lines.empty());
}

TEST_CASE("who may not host waits and says so") {
  World world;
  ProbeOptions options = world.options(World::free_port(), "ours");
  options.join_timeout = 200ms;
  options.is_host = false;
  const ProbeResult told = world.find(std::move(options));
  CHECK(told.exit_code == 75);
  CHECK(told.text.find("is_host=false") != std::string::npos);

  options = world.options(World::free_port(), "ours");
  options.join_timeout = 200ms;
  options.advertise_addr = "127.0.0.3";
  const ProbeResult elsewhere = world.find(std::move(options));
  CHECK(elsewhere.exit_code == 75);
  CHECK(elsewhere.text.find("the address is not this host's") != std::string::npos);
}

TEST_CASE("a port that is not ours to take is a configuration error") {
  if (geteuid() == 0) return;  // root may take any
  World world;
  CHECK(world.find(world.options(1, "ours")).exit_code == 2);
}

TEST_CASE("a probe that is given up calls nobody") {
  World world;
  bool called = false;
  {
    ProbeOptions options = world.options(World::free_port(), "ours");
    options.endpoint.host = "no-such-host.invalid";  // the resolver thread outlives the probe
    EndpointProbe probe(world.io, std::move(options));
    probe.start([&](const ProbeResult&) { called = true; });
  }
  world.io.run();
  CHECK_FALSE(called);
}

}  // namespace muster::launcher
