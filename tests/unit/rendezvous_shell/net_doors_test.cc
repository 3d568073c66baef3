// SPDX-License-Identifier: Apache-2.0
//
// Doors: who may bind, who may come in, who answers.
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/rendezvous/shell/control_client.h"
#include "proto/transport/file.h"
#include "proto/transport/listener.h"
#include "tests/unit/rendezvous_shell/net_harness.h"

namespace muster {
namespace {

using rendezvous::Answerer;
using rendezvous::ControlTarget;
using test::NetAgent;
using test::NetServer;

constexpr Duration kPatience = 10s;

ControlTarget tcp(int port, std::string token = "", std::string host = "127.0.0.1") {
  return {std::move(host), port, "", {std::move(token), nullptr}};
}
ControlTarget unix_at(const std::string& path) {
  return {"", 0, path, {}};
}

// Accepts connections, says `greeting` at once or `reply` after the first bytes, and keeps them.
class Stranger {
 public:
  Stranger(std::string greeting, std::string reply) {
    thread_.on_io([&] {
      listener_ = *transport::Listener::tcp(
          thread_.io(), "127.0.0.1", 0, [this, greeting, reply](int fd, const std::string&) {
            kept_.emplace_back(fd);
            if (!greeting.empty()) (void)::send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL);
            if (reply.empty()) return;
            answerers_.emplace_back([fd, reply] {
              char byte = 0;
              while (::recv(fd, &byte, 1, 0) < 0)
                ::usleep(1000);
              (void)::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
            });
          });
    });
  }
  ~Stranger() {
    for (auto& answerer : answerers_)
      answerer.join();
    thread_.on_io([&] { listener_.reset(); });
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  int port() {
    return thread_.on_io([&] { return listener_->port(); });
  }

 private:
  std::unique_ptr<transport::Listener> listener_;
  std::vector<transport::File> kept_;
  std::vector<std::thread> answerers_;
  test::IoThread thread_;
};

int free_port() {
  NetServer server;
  return server.listen();
}

}  // namespace

TEST_CASE("why a bind failed is known", "[doors]") {
  NetServer server;
  const int port = server.listen();
  REQUIRE(port > 0);
  NetServer other;
  CHECK(other.try_listen("127.0.0.1", port).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(other.try_listen("", port).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(other.try_listen("198.51.100.7", 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(other.try_listen("no.such.host.invalid", 0).status().code() == absl::StatusCode::kNotFound);
  CHECK(other.try_listen("127.0.0.1", 65536).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(other.try_listen("127.0.0.2", port).value_or(-1) == port);  // another address
}

TEST_CASE("every address of the machine, and IPv4 peers are written as IPv4", "[doors]") {
  NetServer server;
  const int port = server.listen("");
  test::IoThread thread;
  NetAgent agent(thread, port, {}, "127.0.0.3");
  REQUIRE(agent.open());
  agent.send(test::join_message("job", "a", 1, 1));
  const auto accepted = agent.heard.next<JoinAccepted>();
  REQUIRE(accepted);
  CHECK(accepted->observed_addr == "127.0.0.1");
  CHECK(agent.dialed_addr() == "127.0.0.3");
}

TEST_CASE("a port is free again when its server is gone", "[doors]") {
  int port = 0;
  for (int i = 0; i < 5; ++i) {
    NetServer server;
    const auto bound = server.try_listen("127.0.0.1", port);
    REQUIRE(bound.ok());
    port = *bound;
    test::IoThread thread;
    NetAgent agent(thread, port);
    REQUIRE(agent.open());
    REQUIRE(agent.run_up("job"));
  }
}

TEST_CASE("the control socket: describe and stop", "[doors]") {
  test::TempDir dir;
  const std::string path = dir.path() + "/control/muster.sock";
  NetServer server;
  REQUIRE(server.listen_unix(path).ok());
  struct stat info {};
  REQUIRE(::stat((dir.path() + "/control").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777U) == 0700U);
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));

  const auto described = rendezvous::describe(unix_at(path), kPatience);
  INFO(described.status().ToString());
  REQUIRE(described.ok());
  CHECK(described->server_instance == "instance-1");
  CHECK(described->version == "0.1.0");
  CHECK(described->user == "tester");
  CHECK(described->pid == ::getpid());
  REQUIRE(described->jobs.size() == 1);
  CHECK(described->jobs[0].spec == server.view().at(0).spec);
  CHECK(described->jobs[0].members.at(0).node == "a");

  CHECK(rendezvous::operate(unix_at(path), "nope", rendezvous::StopJob{}, "me", kPatience)
            .status()
            .code() == absl::StatusCode::kNotFound);
  REQUIRE(rendezvous::operate(unix_at(path), "job", rendezvous::StopJob{}, "me", kPatience).ok());
  REQUIRE(agent.heard.next<StopOrder>());
  server.kill();
  CHECK(::access(path.c_str(), F_OK) != 0);  // the file went with it
}

TEST_CASE("a socket file in the wrong place is refused", "[doors]") {
  test::TempDir dir;
  NetServer server;
  ::chmod(dir.path().c_str(), 0755);
  CHECK(server.listen_unix(dir.path() + "/s").code() == absl::StatusCode::kFailedPrecondition);
  ::chmod(dir.path().c_str(), 0700);
  CHECK(server.listen_unix(dir.path() + "/" + std::string(120, 'x')).code() ==
        absl::StatusCode::kInvalidArgument);
  REQUIRE(server.listen_unix(dir.path() + "/s").ok());
  NetServer other;
  CHECK(other.listen_unix(dir.path() + "/s").code() == absl::StatusCode::kAlreadyExists);
}

TEST_CASE("a socket file left by the dead is replaced", "[doors]") {
  test::TempDir dir;
  const std::string path = dir.path() + "/s";
  const std::string copy = dir.path() + "/copy";
  {
    NetServer dead;
    REQUIRE(dead.listen_unix(path).ok());
    REQUIRE(::link(path.c_str(), copy.c_str()) == 0);
  }
  REQUIRE(::rename(copy.c_str(), path.c_str()) == 0);
  NetServer server;
  REQUIRE(server.listen_unix(path).ok());
  CHECK(rendezvous::describe(unix_at(path), kPatience).ok());
}

TEST_CASE("who may stop a job over TCP", "[doors]") {
  SECTION("on loopback without a token: this machine") {
    NetServer server;
    const int port = server.listen();
    test::IoThread thread;
    NetAgent agent(thread, port);
    REQUIRE(agent.open());
    REQUIRE(agent.run_up("job"));
    CHECK(rendezvous::operate(tcp(port), "job", rendezvous::StopJob{}, "me", kPatience).ok());
  }
  SECTION("beyond loopback without a token: nobody, but all may read") {
    NetServer server;
    const int port = server.listen("0.0.0.0");
    test::IoThread thread;
    NetAgent agent(thread, port);
    REQUIRE(agent.open());
    REQUIRE(agent.run_up("job"));
    CHECK(rendezvous::operate(tcp(port), "job", rendezvous::StopJob{}, "me", kPatience)
              .status()
              .code() == absl::StatusCode::kPermissionDenied);
    CHECK(rendezvous::describe(tcp(port), kPatience).ok());
  }
  SECTION("with a token: who has it") {
    rendezvous::ServerOptions options = test::server_options();
    options.credentials.token = "secret";
    NetServer server(std::move(options));
    const int port = server.listen("0.0.0.0");
    test::IoThread thread;
    NetAgent agent(thread, port, {"secret", nullptr});
    REQUIRE(agent.open());
    REQUIRE(agent.run_up("job"));
    for (const std::string& token : {std::string(), std::string("wrong!")}) {
      CHECK(rendezvous::describe(tcp(port, token), kPatience).status().code() ==
            absl::StatusCode::kUnauthenticated);
      CHECK(rendezvous::operate(tcp(port, token), "job", rendezvous::StopJob{}, "me", kPatience)
                .status()
                .code() == absl::StatusCode::kUnauthenticated);
    }
    CHECK(rendezvous::describe(tcp(port, "secret"), kPatience).ok());
    CHECK(rendezvous::operate(tcp(port, "secret"), "job", rendezvous::StopJob{}, "me", kPatience)
              .ok());
  }
}

TEST_CASE("who answers at an endpoint", "[doors]") {
  SECTION("Muster") {
    NetServer server;
    const Answerer answer = rendezvous::probe(tcp(server.listen()), kPatience);
    CHECK(answer.kind == Answerer::Kind::kMuster);
    CHECK(answer.server.server_instance == "instance-1");
    CHECK(answer.server.pid == ::getpid());
    CHECK(answer.addr == "127.0.0.1");
  }
  SECTION("Muster that wants a token is still Muster") {
    rendezvous::ServerOptions options = test::server_options();
    options.credentials.token = "secret";
    NetServer server(std::move(options));
    const Answerer answer = rendezvous::probe(tcp(server.listen()), kPatience);
    CHECK(answer.kind == Answerer::Kind::kMuster);
    CHECK(answer.server.server_instance == "instance-1");
    CHECK(answer.unauthenticated);
  }
  SECTION("nobody") {
    const Answerer answer = rendezvous::probe(tcp(free_port()), kPatience);
    CHECK(answer.kind == Answerer::Kind::kNothing);
    CHECK(answer.text.find("Connection refused") != std::string::npos);
  }
  SECTION("an unknown name") {
    const Answerer answer = rendezvous::probe(tcp(1, "", "no.such.host.invalid"), kPatience);
    CHECK((answer.kind == Answerer::Kind::kNothing || answer.kind == Answerer::Kind::kSilent));
    CHECK(answer.text.find("no.such.host.invalid") != std::string::npos);
  }
  SECTION("SSH") {
    Stranger ssh("SSH-2.0-OpenSSH_9.2\r\n", "");
    const Answerer answer = rendezvous::probe(tcp(ssh.port()), kPatience);
    CHECK(answer.kind == Answerer::Kind::kStranger);
    CHECK(answer.text.find("SSH") != std::string::npos);
  }
  SECTION("a web server") {
    Stranger web("", "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    const Answerer answer = rendezvous::probe(tcp(web.port()), 1s);
    CHECK(answer.kind == Answerer::Kind::kStranger);
    CHECK(answer.text.find("web server") != std::string::npos);
  }
  SECTION("something that never speaks") {
    Stranger silent("", "");
    const Answerer answer = rendezvous::probe(tcp(silent.port()), 300ms);
    CHECK(answer.kind == Answerer::Kind::kSilent);
    CHECK(answer.text.find("does not answer") != std::string::npos);
  }
  SECTION("without blocking, and given up on in the middle") {
    NetServer server;
    const int port = server.listen();
    test::IoThread thread;
    test::Inbox<Answerer> answers;
    std::unique_ptr<rendezvous::Probe> probe;
    thread.on_io([&] {
      probe = rendezvous::probe_async(thread.io(), tcp(port), kPatience,
                                      [&](Answerer answer) { answers.put(std::move(answer)); });
    });
    CHECK(answers.next()->kind == Answerer::Kind::kMuster);
    for (int i = 0; i < 50; ++i) {
      thread.on_io([&] {
        probe = rendezvous::probe_async(thread.io(), tcp(port), kPatience,
                                        [&](Answerer answer) { answers.put(std::move(answer)); });
      });
      for (int turns = i % 7; turns > 0; --turns)
        thread.on_io([] {});
      thread.on_io([&] { probe.reset(); });
    }
  }
}

TEST_CASE("an agent tells a stranger from a silence and a refusal", "[doors]") {
  test::IoThread thread;
  Stranger ssh("SSH-2.0-OpenSSH_9.2\r\n", "");
  NetAgent at_ssh(thread, ssh.port());
  CHECK_FALSE(at_ssh.open());
  CHECK_FALSE(at_ssh.down.next()->speaks_muster);
  NetAgent nowhere(thread, free_port());
  CHECK_FALSE(nowhere.open());
  CHECK(nowhere.down.next()->speaks_muster);
  // Speaks HTTP/2, then nothing: as a server that is stopped in the middle.
  Stranger mute(std::string("\0\0\0\4\0\0\0\0\0", 9), "");
  NetAgent at_mute(thread, mute.port(), {}, "127.0.0.1", 300ms);
  CHECK_FALSE(at_mute.open());
  const auto down = at_mute.down.next();
  CHECK(down->reason.find("no answer to Attach in time") != std::string::npos);
  CHECK(down->speaks_muster);
}

TEST_CASE("no gRPC runs before somebody connects", "[doors]") {
  const auto threads = [] {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
      if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
    }
    return -1;
  };
  // gRPC threads of earlier cases in this process may still end meanwhile: never more than now.
  const int before = threads();
  test::TempDir dir;
  const auto start = std::chrono::steady_clock::now();
  {
    NetServer server;
    REQUIRE(server.listen() > 0);
    REQUIRE(server.listen_unix(dir.path() + "/s").ok());
    CHECK(threads() <= before + 1);  // the io thread
  }
  CHECK(std::chrono::steady_clock::now() - start < 1s);
}

TEST_CASE("connections that say nothing do no harm", "[doors]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  std::vector<transport::File> idle;
  for (int i = 0; i < 50; ++i) {
    idle.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(idle.back().get(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof address) == 0);
    if (i % 2 == 0) {
      const std::string noise = i % 4 == 0 ? "GET / HTTP/1.1\r\n\r\n" : std::string(1000, '\xff');
      (void)::send(idle.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    }
  }
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));
}

}  // namespace muster
