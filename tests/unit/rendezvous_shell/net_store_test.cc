// SPDX-License-Identifier: Apache-2.0
//
// The store, all the way: worker's client, agent's proxy, stream, server, and back.
#include <cstdlib>
#include <fstream>
#include <thread>

#include <catch2/catch.hpp>

#include "agent/shell/store_proxy.h"
#include "tests/unit/rendezvous_shell/net_harness.h"
#include "worker_runtime/collectives/store_client.h"

namespace muster {
namespace {

using runtime::StoreClient;
using test::NetAgent;
using test::NetServer;

// A server, one agent in its first generation, and its proxy.
class Path {
 public:
  explicit Path(rendezvous::ServerOptions options = test::server_options())
      : server(std::move(options)), agent(thread, server.listen()) {
    REQUIRE(agent.open());
    REQUIRE(agent.run_up("job"));
    thread.on_io([&] {
      proxy = std::make_unique<agent::StoreProxy>(thread.io(), "job", "worker-token");
      endpoint = proxy->listen().value_or("");
      proxy->generation_started(0);
      connect();
    });
    REQUIRE_FALSE(endpoint.empty());
  }
  ~Path() {
    thread.on_io([&] { proxy.reset(); });
  }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  void connect() {
    agent.on_store = [this](const StoreReply& reply) { proxy->store_said(reply); };
    proxy->link_up(&agent.link());
  }

  StoreClient::Config config() const { return {endpoint, "worker-token", "job", 0, 20s}; }

  NetServer server;
  test::IoThread thread;
  NetAgent agent;
  std::unique_ptr<agent::StoreProxy> proxy;
  std::string endpoint;
};

}  // namespace

TEST_CASE("a worker sets, gets, adds and deletes", "[net_store]") {
  Path path;
  StoreClient client(path.config());
  CHECK(client.set("k", "v").ok());
  CHECK(client.get("k", 0ns).value_or("") == "v");
  CHECK(client.get("absent", 0ns).status().code() == absl::StatusCode::kNotFound);
  CHECK(client.get("absent", 20ms).status().code() == absl::StatusCode::kNotFound);
  CHECK(client.add("n", 40).value_or(0) == 40);
  CHECK(client.add("n", 2).value_or(0) == 42);
  CHECK(client.add("k", 2).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(client.remove("k").ok());
  CHECK(client.remove("k").code() == absl::StatusCode::kNotFound);
  const std::string large(kMaxStoreValueBytes, 'x');
  CHECK(client.set("large", large).ok());
  CHECK(client.get("large", 0ns).value_or("") == large);
  CHECK(client.set("large", large + "x").code() == absl::StatusCode::kInvalidArgument);
  CHECK(client.set("", "v").code() == absl::StatusCode::kInvalidArgument);
  const std::string bytes("\0\xff\n", 3);
  CHECK(client.set(bytes, bytes).ok());
  CHECK(client.get(bytes, 0ns).value_or("") == bytes);
}

TEST_CASE("eight workers meet", "[net_store]") {
  Path path;
  constexpr int kWorkers = 8;
  std::vector<std::thread> workers;
  test::Inbox<std::string> met;
  for (int rank = 0; rank < kWorkers; ++rank) {
    workers.emplace_back([&, rank] {
      StoreClient client(path.config());
      const bool told = client.set("addr/" + std::to_string(rank), std::to_string(rank)).ok();
      std::string all = told ? "" : "set failed ";
      for (int other = kWorkers - 1; other >= 0; --other) {
        all += client.get("addr/" + std::to_string(other), 20s).value_or("?");
      }
      met.put(client.add("met", 1).ok() ? all : "add failed");
    });
  }
  for (auto& worker : workers)
    worker.join();
  for (int i = 0; i < kWorkers; ++i)
    CHECK(met.next() == "76543210");
  StoreClient client(path.config());
  CHECK(client.get("met", 0ns).value_or("") == "8");
}

TEST_CASE("many get a large value though little may wait to be read", "[net_store]") {
  rendezvous::ServerOptions options = test::server_options();
  options.max_outgoing_bytes = 1;  // one answer at a time
  Path path(std::move(options));
  const std::string large(kMaxStoreValueBytes, 'x');
  std::vector<std::thread> workers;
  test::Inbox<bool> got;
  for (int i = 0; i < 12; ++i) {
    workers.emplace_back([&] {
      StoreClient client(path.config());
      const bool told = client.add("waiting", 1).ok();
      got.put(told && client.get("large", 60s).value_or("") == large);
    });
  }
  StoreClient client(path.config());
  REQUIRE(test::eventually([&] { return client.get("waiting", 0ns).value_or("") == "12"; }));
  CHECK(client.set("large", large).ok());
  for (auto& worker : workers)
    worker.join();
  for (int i = 0; i < 12; ++i)
    CHECK(got.next() == true);
}

TEST_CASE("those who wait are told when the generation ends", "[net_store]") {
  Path path;
  std::vector<std::thread> workers;
  test::Inbox<absl::StatusCode> codes;
  for (int i = 0; i < 8; ++i) {
    workers.emplace_back([&] {
      StoreClient client(path.config());
      if (!client.add("waiting", 1).ok()) return codes.put(absl::StatusCode::kInternal);
      codes.put(client.get("never", 60s).status().code());
    });
  }
  StoreClient client(path.config());
  REQUIRE(test::eventually([&] { return client.get("waiting", 0ns).value_or("") == "8"; }));
  SECTION("by the server, whose job ended") {
    REQUIRE(path.agent.finish_job());
  }
  SECTION("by the agent") {
    path.thread.on_io([&] { path.proxy->generation_ended(); });
  }
  for (auto& worker : workers)
    worker.join();
  for (int i = 0; i < 8; ++i)
    CHECK(codes.next() == absl::StatusCode::kAborted);
  CHECK(client.set("k", "v").code() == absl::StatusCode::kAborted);
}

TEST_CASE("a reconnect in the middle of waiting is not noticed", "[net_store]") {
  Path path;
  test::Inbox<std::string> got;
  std::thread worker([&] {
    StoreClient client(path.config());
    got.put(client.set("here", "1").ok() ? client.get("later", 20s).value_or("?") : "set failed");
  });
  StoreClient client(path.config());
  REQUIRE(client.get("here", 20s).ok());
  const Envelope known = path.agent.heard.last;
  path.thread.on_io([&] {
    path.proxy->link_down();
    path.agent.link().close();
  });
  REQUIRE(path.agent.open());
  AgentMessage again = test::join_message("job", "a", 1, 1);
  again.envelope = known;
  std::get<Join>(again.body).reattach =
      Reattach{known.run, known.incarnation, known.generation, true, {}, 0, known.epoch};
  path.agent.send(again);
  REQUIRE(path.agent.heard.next<JoinAccepted>());
  path.thread.on_io([&] { path.connect(); });
  REQUIRE(client.set("later", "yes").ok());
  worker.join();
  CHECK(got.next() == "yes");
}

TEST_CASE("the wrong worker is refused", "[net_store]") {
  Path path;
  StoreClient::Config config = path.config();
  SECTION("token") {
    config.token = "guess";
    CHECK(StoreClient(config).set("k", "v").code() == absl::StatusCode::kUnauthenticated);
  }
  SECTION("generation") {
    config.generation = 1;
    CHECK(StoreClient(config).set("k", "v").code() == absl::StatusCode::kAborted);
  }
  SECTION("job") {
    config.job = "other";
    CHECK(StoreClient(config).set("k", "v").code() == absl::StatusCode::kAborted);
  }
}

TEST_CASE("a gRPC server that is not a rendezvous is a stranger", "[net_store]") {
  Path path;
  const int port = std::stoi(path.endpoint.substr(path.endpoint.find(':') + 1));
  NetAgent lost(path.thread, port);
  CHECK_FALSE(lost.open());
  const auto down = lost.down.next();
  CHECK(down->reason.find("UNIMPLEMENTED") != std::string::npos);
  CHECK_FALSE(down->speaks_muster);
}

TEST_CASE("the proxy's end answers those who wait", "[net_store]") {
  Path path;
  test::Inbox<absl::StatusCode> codes;
  std::thread worker([&] {
    StoreClient client(path.config());
    codes.put(client.set("here", "1").code());
    codes.put(client.get("never", 60s).status().code());
  });
  CHECK(codes.next() == absl::StatusCode::kOk);
  path.thread.on_io([&] { path.proxy.reset(); });
  worker.join();
  const auto code = codes.next();
  // Answered by the ending broker, or its call was cut while being passed on.
  CHECK((code == absl::StatusCode::kAborted || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kCancelled));
}

TEST_CASE("the worker's configuration comes from its environment", "[net_store]") {
  Path path;
  test::TempDir dir;
  const std::string file = dir.path() + "/token";
  std::ofstream(file) << "worker-token\n";
  ::unsetenv("MUSTER_STORE");
  CHECK(StoreClient::config_from_environment().status().code() == absl::StatusCode::kNotFound);
  ::setenv("MUSTER_STORE", path.endpoint.c_str(), 1);
  ::setenv("MUSTER_STORE_TOKEN_FILE", file.c_str(), 1);
  ::setenv("MUSTER_JOB_ID", "job", 1);
  ::setenv("MUSTER_GENERATION", "x", 1);
  CHECK(StoreClient::config_from_environment().status().code() ==
        absl::StatusCode::kInvalidArgument);
  ::setenv("MUSTER_GENERATION", "0", 1);
  const auto config = StoreClient::config_from_environment();
  REQUIRE(config.ok());
  CHECK(StoreClient(*config).set("k", "v").ok());
  ::setenv("MUSTER_STORE_TOKEN_FILE", "/nonexistent", 1);
  const auto missing = StoreClient::config_from_environment();
  CHECK(missing.status().message().find("/nonexistent") != absl::string_view::npos);
}

}  // namespace muster
