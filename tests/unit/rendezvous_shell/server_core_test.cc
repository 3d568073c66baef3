// SPDX-License-Identifier: Apache-2.0
//
// The server on its strand with agents in the same process: no gRPC in this program.
#include "launcher/rendezvous/shell/server_core.h"

#include <catch2/catch.hpp>

#include "agent/shell/store_broker.h"
#include "tests/unit/rendezvous_shell/core_world.h"

namespace muster::rendezvous {
namespace {

using test::finish_job;
using test::Heard;
using test::Inbox;
using test::run_up;
using test::World;

StoreRequest store_request(StoreRequest::Op op, std::uint64_t id, std::string key,
                           std::string value = "", Duration wait = 0ns) {
  StoreRequest out;
  out.id = id;
  out.generation = 0;
  out.op = op;
  out.key = std::move(key);
  out.value = std::move(value);
  out.wait = wait;
  return out;
}

class FailingJournal : public Journal {
 public:
  absl::Status commit(std::span<const Action>) override { return absl::DataLossError("disk full"); }
  absl::Status put(const StoredKey&) override { return absl::DataLossError("disk full"); }
  absl::StatusOr<JournalContents> read() override { return JournalContents{}; }
};

// Writes down in which order things happen.
class OrderedJournal : public Journal {
 public:
  explicit OrderedJournal(Inbox<std::string>& order) : order_(order) {}
  absl::Status commit(std::span<const Action> actions) override {
    for (const Action& action : actions) {
      const auto* persist = std::get_if<Persist>(&action);
      if (persist == nullptr) continue;
      order_.put("generation " + std::to_string(persist->record.generation) + " is durable");
    }
    return absl::OkStatus();
  }
  absl::Status put(const StoredKey& key) override {
    order_.put("key " + key.key + " is durable");
    return absl::OkStatus();
  }
  absl::StatusOr<JournalContents> read() override { return JournalContents{}; }

 private:
  Inbox<std::string>& order_;
};

// Keeps what was written in memory, for the server after this one.
class KeepingJournal : public Journal {
 public:
  explicit KeepingJournal(JournalContents& kept) : kept_(kept) {}
  absl::Status commit(std::span<const Action> actions) override {
    write_down({actions.begin(), actions.end()}, kept_.runs);
    return absl::OkStatus();
  }
  absl::Status put(const StoredKey& key) override {
    kept_.keys.push_back(key);
    return absl::OkStatus();
  }
  absl::StatusOr<JournalContents> read() override { return kept_; }

 private:
  JournalContents& kept_;
};

}  // namespace

TEST_CASE("a whole one-node job over an in-process session", "[server_core]") {
  Heard heard;  // outlives those who fill it
  World world;
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  finish_job(world, session, heard);
  const auto outcome = world.over.next();
  REQUIRE(outcome);
  CHECK(outcome->exit_code == 0);
  std::vector<std::string> events;
  while (world.events.size() > 0)
    events.push_back(*world.events.next());
  CHECK(std::find(events.begin(), events.end(), "generation_running") != events.end());
  CHECK(events.back() == "job_finished");
}

TEST_CASE("nothing of a step leaves before it is durable", "[server_core]") {
  Inbox<std::string> order;
  ServerOptions options = test::server_options();
  options.journal = std::make_unique<OrderedJournal>(order);
  Heard heard;
  World world(std::move(options));
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  // The Commit was heard, so generation 0 was written.
  bool written = false;
  while (order.size() > 0)
    written = *order.next() == "generation 0 is durable" || written;
  CHECK(written);
}

TEST_CASE("a server goes on from what the one before wrote, the workers' keys too",
          "[server_core]") {
  JournalContents kept;
  Envelope known;
  {
    ServerOptions options = test::server_options();
    options.journal = std::make_unique<KeepingJournal>(kept);
    Heard heard;
    World world(std::move(options));
    LocalSession& session = world.attach(heard);
    run_up(world, session, heard, "job");
    world.thread.on_io([&] { session.store(store_request(StoreRequest::Op::kSet, 1, "k", "v")); });
    REQUIRE(heard.store.next());
    known = heard.last;
  }
  ServerOptions options = test::server_options();
  options.written = kept;
  Heard heard;
  World world(std::move(options));
  LocalSession& session = world.attach(heard);
  AgentMessage join = test::join_message("job", "a", 1, 1);
  std::get<Join>(join.body).reattach =
      Reattach{known.run, known.incarnation, known.generation, true, {}, 0, known.epoch};
  world.send(session, join);
  REQUIRE(heard.next<JoinAccepted>());
  world.thread.on_io([&] { session.store(store_request(StoreRequest::Op::kGet, 2, "k")); });
  const auto found = heard.store.next();
  REQUIRE(found);
  CHECK(found->status == StoreReply::Status::kOk);
  CHECK(found->value == "v");
  heard.last = known;
  heard.last.epoch = known.epoch + 1;
  finish_job(world, session, heard);
}

TEST_CASE("a journal that fails stops the server, and nothing more is said", "[server_core]") {
  ServerOptions options = test::server_options();
  options.journal = std::make_unique<FailingJournal>();
  Heard heard;
  World world(std::move(options));
  LocalSession& session = world.attach(heard);
  world.send(session, test::join_message("job", "a", 1, 1));
  const auto why = world.broken.next();
  REQUIRE(why);
  CHECK(why->message() == "disk full");
  CHECK(heard.closed.next() == "the server's journal failed");
  CHECK(heard.said.size() == 0);  // not even JoinAccepted: it could not be remembered
  Inbox<std::string> answers;
  world.thread.on_io([&] {
    world.core->operate("job", "me", StopJob{}, [&answers](const OrderAnswer& answer) {
      answers.put(answer.accepted() ? "accepted" : answer.text);
    });
  });
  CHECK(answers.next() == "the server's journal failed");
}

TEST_CASE("the store serves members only, and its end is told", "[server_core]") {
  Heard stranger;
  Heard heard;
  World world;
  LocalSession& outside = world.attach(stranger);
  world.thread.on_io([&] { outside.store(store_request(StoreRequest::Op::kSet, 1, "k", "v")); });
  REQUIRE(stranger.store.next()->status == StoreReply::Status::kStale);

  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  world.thread.on_io([&] {
    session.store(store_request(StoreRequest::Op::kGet, 1, "k", "", 20s));
    session.store(store_request(StoreRequest::Op::kSet, 2, "k", "v"));
    session.store(store_request(StoreRequest::Op::kGet, 3, "soon", "", 20ms));
    session.store(store_request(StoreRequest::Op::kGet, 4, "never", "", 20s));
  });
  CHECK(heard.store.next()->id == 2);
  const auto waited = heard.store.next();
  CHECK(waited->id == 1);
  CHECK(waited->value == "v");
  const auto late = heard.store.next();
  CHECK(late->id == 3);
  CHECK(late->status == StoreReply::Status::kNotFound);
  finish_job(world, session, heard);
  const auto stale = heard.store.next();
  REQUIRE(stale);
  CHECK(stale->id == 4);
  CHECK(stale->status == StoreReply::Status::kStale);
}

TEST_CASE("an operator's stop is answered once", "[server_core]") {
  Heard heard;  // outlives those who fill it
  World world;
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  Inbox<bool> answers;
  world.thread.on_io([&] {
    const auto answer = [&answers](const OrderAnswer& given) { answers.put(given.accepted()); };
    world.core->operate("another", "me", StopJob{}, answer);
    world.core->operate("job", "me", StopJob{}, answer);
  });
  CHECK(answers.next() == false);
  CHECK(answers.next() == true);
  REQUIRE(heard.next<StopOrder>());
}

TEST_CASE("a server that stops says so and closes its sessions", "[server_core]") {
  Heard heard;
  Heard late;
  World world;
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  world.thread.on_io([&] { world.core->stop("told to"); });
  REQUIRE(heard.next<ServerLeaving>());
  CHECK(heard.closed.next() == "server_leaving: told to");
  world.attach(late);
  CHECK(late.closed.next() == "the server is going away");
}

TEST_CASE("a server that closes ends no job and does nothing more", "[server_core]") {
  Heard heard;
  Heard late;
  World world;
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  world.thread.on_io([&] { world.core->close("restarting"); });
  CHECK(heard.closed.next() == "restarting");
  while (heard.said.size() > 0) {
    CHECK_FALSE(std::holds_alternative<ServerLeaving>(heard.said.next()->body));
  }
  CHECK(world.thread.on_io([&] { return world.core->view().front().phase; }) == Phase::kRunning);
  world.attach(late);
  CHECK(late.closed.next() == "the server is going away");
  Inbox<bool> answers;
  world.thread.on_io([&] {
    world.core->operate("job", "me", StopJob{},
                        [&answers](const OrderAnswer& given) { answers.put(given.accepted()); });
  });
  CHECK(answers.next() == false);
}

TEST_CASE("a closed session is a lost stream and hears nothing more", "[server_core]") {
  Heard heard;  // outlives those who fill it
  World world;
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  world.thread.on_io([&] {
    session.close();
    session.close();
    session.send(test::message_from(heard.last, Heartbeat{1, {}}));
  });
  CHECK(world.thread.on_io([&] { return world.core->open_sessions(); }) == 0);
  const auto views = world.thread.on_io([&] { return world.core->view(); });
  REQUIRE(views.size() == 1);
  REQUIRE(views[0].members.size() == 1);
  CHECK_FALSE(views[0].members[0].connected);
  CHECK(heard.closed.size() == 0);
}

TEST_CASE("sessions outlive their server without harm", "[server_core]") {
  Heard heard;  // outlives those who fill it
  World world;
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  world.thread.on_io([&] { world.core.reset(); });
  CHECK(heard.closed.next() == "the server ended");
  world.send(session, test::message_from(heard.last, Heartbeat{1, {}}));
  world.thread.on_io([&] { session.close(); });
}

TEST_CASE("the broker and the store, agent to server and back", "[server_core]") {
  // A ServerLink over an in-process session, as the launcher's.
  class Link : public agent::ServerLink {
   public:
    explicit Link(LocalSession& session) : session_(session) {}
    void open(Callbacks) override {}
    void send(AgentMessage message) override { session_.send(std::move(message)); }
    void store(StoreRequest request) override { session_.store(std::move(request)); }
    void close() override { session_.close(); }

   private:
    LocalSession& session_;
  };
  Heard heard;  // outlives those who fill it
  World world;
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  Link link(session);
  agent::StoreBroker broker(
      [] { return Instant{std::chrono::steady_clock::now().time_since_epoch()}; });
  Inbox<std::string> answers;
  const auto ask = [&](StoreRequest request) {
    broker.ask(std::move(request), [&answers](absl::StatusOr<StoreReply> reply) {
      answers.put(reply.ok() ? reply->value : std::string(reply.status().message()));
    });
  };
  world.thread.on_io([&] {
    broker.generation_started(0);
    ask(store_request(StoreRequest::Op::kGet, 0, "k", "", 20s));
    broker.link_up(&link);
    ask(store_request(StoreRequest::Op::kSet, 0, "k", "v"));
  });
  for (int i = 0; i < 2; ++i) {
    const auto reply = heard.store.next();
    REQUIRE(reply);
    world.thread.on_io([&] { broker.store_said(*reply); });
  }
  CHECK(answers.next() == "");
  CHECK(answers.next() == "v");
  world.thread.on_io([&] { broker.generation_ended(); });
}

}  // namespace muster::rendezvous
