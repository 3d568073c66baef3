// SPDX-License-Identifier: Apache-2.0
//
// Agents and server over real gRPC on loopback.
#include <catch2/catch.hpp>
#include <grpcpp/support/client_callback.h>

#include "muster/v1/rendezvous.grpc.pb.h"
#include "proto/transport/dialer.h"
#include "proto/transport/grpc_channel.h"
#include "proto/wire/messages.h"
#include "tests/unit/rendezvous_shell/net_harness.h"

namespace muster {
namespace {

using test::NetAgent;
using test::NetServer;

}  // namespace

TEST_CASE("an agent attaches, runs a job and sees its outcome", "[net]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  CHECK(agent.dialed_addr().empty());
  REQUIRE(agent.open());
  CHECK(agent.dialed_addr() == "127.0.0.1");
  agent.send(test::join_message("job", "a", 2, 2));
  const auto accepted = agent.heard.next<JoinAccepted>();
  REQUIRE(accepted);
  CHECK(accepted->server_instance == "instance-1");
  CHECK(accepted->observed_addr == "127.0.0.1");
  CHECK(agent.heard.next<Waiting>()->missing == 1);

  NetAgent one(thread, port);
  REQUIRE(one.open());
  REQUIRE(one.run_up("other"));
  REQUIRE(one.finish_job());
  CHECK(server.over.next()->kind == OutcomeKind::kSucceeded);
}

TEST_CASE("a name is resolved and the numeric address told", "[net]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port, {}, "localhost");
  REQUIRE(agent.open());
  CHECK(agent.dialed_addr() == "127.0.0.1");
}

TEST_CASE("an agent that goes away is disconnected and may come back", "[net]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));
  const Envelope known = agent.heard.last;
  agent.close();
  REQUIRE(test::eventually([&] { return !server.view().at(0).members.at(0).connected; }));

  REQUIRE(agent.open());
  AgentMessage again = test::join_message("job", "a", 1, 1);
  again.envelope = known;
  std::get<Join>(again.body).reattach =
      Reattach{known.run, known.incarnation, known.generation, true, {}, 0, known.epoch};
  agent.send(again);
  REQUIRE(agent.heard.next<JoinAccepted>());
  CHECK(agent.heard.last.incarnation == known.incarnation);
  CHECK(server.view().at(0).generation == 0);
  agent.heard.last = known;
  REQUIRE(agent.finish_job());
}

TEST_CASE("last words before close arrive", "[net]") {
  NetServer server;
  const int port = server.listen();
  for (int i = 0; i < 20; ++i) {
    test::IoThread thread;
    {
      NetAgent agent(thread, port);
      REQUIRE(agent.open());
      const JobId job = "job-" + std::to_string(i);
      REQUIRE(agent.run_up(job));
      agent.send(test::message_from(agent.heard.last, Leave{15, "SIGTERM"}));
      agent.close();
    }  // the link is gone when this returns
    REQUIRE(test::eventually([&] {
      for (const auto& job : server.view()) {
        if (job.spec.job == "job-" + std::to_string(i)) {
          return job.members.empty() || job.outcome.has_value();
        }
      }
      return false;
    }));
  }
}

TEST_CASE("a message that breaks a rule ends the stream with the field's name", "[net]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  AgentMessage join = test::join_message("job", "a", 1, 1);
  std::get<Join>(join.body).spec.min_nodes = 0;
  agent.send(join);
  const auto down = agent.down.next();
  REQUIRE(down);
  CHECK(down->reason.find("INVALID_ARGUMENT: join.spec.min_nodes: is 0") != std::string::npos);
  CHECK(down->speaks_muster);
  // The server is none the worse for it.
  NetAgent other(thread, port);
  REQUIRE(other.open());
  REQUIRE(other.run_up("job"));
}

TEST_CASE("a refused join closes the stream after the words", "[net]") {
  rendezvous::ServerOptions options = test::server_options();
  options.machine.only_job = "mine";
  NetServer server(std::move(options));
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  agent.send(test::join_message("yours", "a", 1, 1));
  const auto refused = agent.heard.next<JoinRefused>();
  REQUIRE(refused);
  CHECK(refused->why == JoinRefused::Why::kOtherJob);
  CHECK(refused->text.find("pid 1") != std::string::npos);
  CHECK(agent.down.next()->speaks_muster);
}

TEST_CASE("a server that stops says so to everybody", "[net]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));
  server.stop("told to");
  REQUIRE(agent.heard.next<ServerLeaving>());
  const auto down = agent.down.next();
  REQUIRE(down);
  CHECK(down->reason.find("server_leaving: told to") != std::string::npos);
  CHECK_FALSE(agent.open());  // its door is closed
  CHECK(agent.down.next()->reason.find("Connection refused") != std::string::npos);
}

TEST_CASE("a server that dies is noticed at once", "[net]") {
  NetServer server;
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));
  server.kill();
  REQUIRE(agent.down.next());
}

TEST_CASE("a token is asked for and checked", "[net]") {
  rendezvous::ServerOptions options = test::server_options();
  options.credentials.token = "secret";
  NetServer server(std::move(options));
  const int port = server.listen();
  test::IoThread thread;
  NetAgent without(thread, port);
  REQUIRE_FALSE(without.open());
  const auto down = without.down.next();
  CHECK(down->reason.find("UNAUTHENTICATED") != std::string::npos);
  CHECK(down->speaks_muster);
  NetAgent wrong(thread, port, {"secreT", nullptr});
  CHECK_FALSE(wrong.open());
  NetAgent right(thread, port, {"secret", nullptr});
  REQUIRE(right.open());
  REQUIRE(right.run_up("job"));
}

TEST_CASE("an agent that never joins gives its place back", "[net]") {
  rendezvous::ServerOptions options = test::server_options();
  options.join_within = 2s;
  options.max_sessions = 2;
  NetServer server(std::move(options));
  const int port = server.listen();
  test::IoThread thread;
  NetAgent agent(thread, port);
  REQUIRE(agent.open());
  REQUIRE(agent.run_up("job"));
  NetAgent silent(thread, port);
  REQUIRE(silent.open());
  const auto down = silent.down.next();
  REQUIRE(down);
  CHECK(down->reason.find("no join was accepted on this stream within 2s") != std::string::npos);
  CHECK(down->speaks_muster);
  NetAgent other(thread, port);
  REQUIRE(other.open());
  REQUIRE(other.run_up("another"));
  REQUIRE(agent.finish_job());
}

TEST_CASE("an agent that does not read is cut off", "[net]") {
  // Talks without end and never listens. It did not join, so every message is answered: stale.
  class Deaf : public grpc::ClientBidiReactor<v1::AgentMessage, v1::ServerMessage> {
   public:
    explicit Deaf(transport::File file)
        : stub_(v1::Rendezvous::NewStub(transport::channel_over(std::move(file)))) {
      stub_->async()->Attach(&context_, this);
      Envelope envelope;
      envelope.job = std::string(500, 'j');
      envelope.node = std::string(500, 'n');
      message_ = wire::to_wire(AgentMessage{envelope, Heartbeat{1, {}}});
      StartWrite(&message_);
      StartCall();
    }
    ~Deaf() override {
      context_.TryCancel();
      if (!over_) ended.next();
    }
    Deaf(const Deaf&) = delete;
    Deaf& operator=(const Deaf&) = delete;

    std::optional<grpc::StatusCode> wait() {
      const auto code = ended.next();
      over_ = code.has_value();
      return code;
    }

   private:
    void OnWriteDone(bool ok) override {
      if (ok) return StartWrite(&message_);
      StartRead(&ignored_);  // to learn the end
    }
    void OnReadDone(bool ok) override {
      if (ok) StartRead(&ignored_);
    }
    void OnDone(const grpc::Status& status) override { ended.put(status.error_code()); }

    test::Inbox<grpc::StatusCode> ended;
    bool over_ = false;
    std::unique_ptr<v1::Rendezvous::Stub> stub_;
    grpc::ClientContext context_;
    v1::AgentMessage message_;
    v1::ServerMessage ignored_;
  };
  rendezvous::ServerOptions options = test::server_options();
  options.max_queued_bytes = 65536;
  NetServer server(std::move(options));
  const int port = server.listen();
  test::IoThread thread;
  test::Inbox<int> connected;
  std::unique_ptr<transport::Dialer> dialer;
  thread.on_io([&] {
    dialer = transport::Dialer::start(
        thread.io(), {"127.0.0.1", port, ""}, nullptr, 10s,
        [&](transport::Dialed dialed) { connected.put(dialed.file.release()); });
  });
  const auto fd = connected.next();
  REQUIRE(fd);
  Deaf deaf{transport::File(*fd)};
  CHECK(deaf.wait() == grpc::StatusCode::CANCELLED);
  NetAgent other(thread, port);
  REQUIRE(other.open());
  REQUIRE(other.run_up("job"));
  thread.on_io([&] { dialer.reset(); });
}

TEST_CASE("many agents come and go, and nothing is left open", "[net]") {
  std::size_t before = 0;
  for (int round = 0; round < 6; ++round) {
    {
      NetServer server;
      const int port = server.listen();
      test::IoThread thread;
      std::vector<std::unique_ptr<NetAgent>> agents;
      for (int i = 0; i < 16; ++i) {
        agents.push_back(std::make_unique<NetAgent>(thread, port));
        REQUIRE(agents.back()->open());
        agents.back()->send(test::join_message("job", "node-" + std::to_string(i), 16, 16));
        REQUIRE(agents.back()->heard.next<JoinAccepted>());
      }
      for (auto& agent : agents)
        REQUIRE(agent->heard.next<Prepare>());
      if (round % 2 == 0) server.kill();  // the server first, or the agents
    }
    // gRPC closes what it was given a moment after its last call; its own few descriptors stay.
    if (round < 2) {
      before = test::open_descriptors();
    } else {
      CHECK(test::eventually([&] { return test::open_descriptors() <= before; }));
    }
  }
}

}  // namespace muster
