// SPDX-License-Identifier: Apache-2.0
//
// The server on its strand with agents in the same process: no gRPC in this program.
#include "launcher/rendezvous/shell/server_core.h"

#include <catch2/catch.hpp>

#include "agent/shell/store_broker.h"
#include "tests/unit/rendezvous_shell/harness.h"

namespace muster::rendezvous {
namespace {

using test::Heard;
using test::Inbox;
using test::IoThread;

// A server and agents on one io thread; torn down there, too.
class World {
 public:
  explicit World(ServerOptions options = test::server_options()) {
    options.on_event = [this](const JobId&, const RunId&, const JobEvent& event) {
      events.put(event_name(event.body));
    };
    options.on_job_over = [this](const JobId&, const RunId&, const Outcome& outcome) {
      over.put(outcome);
    };
    options.on_broken = [this](absl::Status why) { broken.put(std::move(why)); };
    thread.on_io([&] { core = std::make_unique<ServerCore>(thread.io(), std::move(options)); });
  }
  ~World() {
    thread.on_io([&] {
      sessions.clear();
      core.reset();
    });
  }

  LocalSession& attach(Heard& heard) {
    return *thread.on_io([&] {
      LocalSession::Callbacks callbacks;
      callbacks.said = [&heard](ServerMessage message) { heard.said.put(std::move(message)); };
      callbacks.store_said = [&heard](StoreReply reply) { heard.store.put(std::move(reply)); };
      callbacks.closed = [&heard](std::string reason) { heard.closed.put(std::move(reason)); };
      sessions.push_back(core->attach_local(std::move(callbacks)));
      return sessions.back().get();
    });
  }

  void send(LocalSession& session, AgentMessage message) {
    thread.on_io([&] { session.send(std::move(message)); });
  }

  Inbox<std::string> events;
  Inbox<Outcome> over;
  Inbox<absl::Status> broken;
  std::unique_ptr<ServerCore> core;
  std::vector<std::unique_ptr<LocalSession>> sessions;
  IoThread thread;  // last: its loop ends first
};

// Joins one node of a one-node job and runs it up to its first generation.
void run_up(World& world, LocalSession& session, Heard& heard, const JobId& job) {
  world.send(session, test::join_message(job, "a", 1, 1));
  REQUIRE(heard.next<JoinAccepted>());
  const auto prepare = heard.next<Prepare>();
  REQUIRE(prepare);
  const Generation generation = prepare->assignment.generation;
  Envelope envelope = heard.last;
  envelope.generation = generation;
  world.send(session,
             test::message_from(envelope, PrepareAnswer{prepare->attempt, true, 29999, ""}));
  REQUIRE(heard.next<Commit>());
  world.send(session, test::message_from(envelope, WorkersStarted{{{0, 4242}}, 1ms}));
  heard.last = envelope;
}

void finish_job(World& world, LocalSession& session, Heard& heard) {
  WorkerExited exited;
  exited.pid = 4242;
  world.send(session, test::message_from(heard.last, exited));
  const Envelope envelope = heard.last;
  const auto outcome = heard.next<OutcomeNotice>();
  REQUIRE(outcome);
  CHECK(outcome->outcome.kind == OutcomeKind::kSucceeded);
  world.send(session, test::message_from(envelope, OutcomeSeen{}));
}

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

TEST_CASE("a stream on which no join is accepted goes after its time", "[server_core]") {
  constexpr const char* kWhy =
      "no join was accepted on this stream within 200ms; a stream is for an agent that joins";
  ServerOptions options = test::server_options();
  options.join_within = 200ms;
  options.max_sessions = 3;
  Heard heard;
  Heard silent;
  Heard stray;
  Heard late;
  World world(std::move(options));
  const auto start = std::chrono::steady_clock::now();
  LocalSession& session = world.attach(heard);
  world.attach(silent);
  LocalSession& lost = world.attach(stray);
  world.attach(late);
  CHECK(late.closed.next() == "the server has its 3 streams");
  world.send(lost, test::message_from(heard.last, Heartbeat{1, {}}));  // answered, but no join
  run_up(world, session, heard, "job");
  CHECK(silent.closed.next() == kWhy);
  CHECK(stray.closed.next() == kWhy);
  CHECK(std::chrono::steady_clock::now() - start >= 200ms);
  CHECK(world.thread.on_io([&] { return world.core->open_sessions(); }) == 1);
  finish_job(world, session, heard);

  // One that is told an old run's outcome joins nothing either.
  REQUIRE(world.over.next());
  Heard asker;
  LocalSession& asking = world.attach(asker);
  AgentMessage join = test::join_message("job", "a", 1, 1);
  std::get<Join>(join.body).reattach =
      Reattach{heard.last.run, heard.last.incarnation, 0, false, {}, 0, heard.last.epoch};
  world.send(asking, join);
  REQUIRE(asker.next<OutcomeNotice>());
  CHECK(asker.closed.next() == kWhy);
}

TEST_CASE("an agent of a run that is forgotten keeps no stream for ever", "[server_core]") {
  ServerOptions options = test::server_options();
  options.join_within = 100ms;
  options.machine.limits.outcome_kept = 100ms;
  Heard heard;
  World world(std::move(options));
  LocalSession& session = world.attach(heard);
  run_up(world, session, heard, "job");
  finish_job(world, session, heard);
  const auto why = heard.closed.next();
  REQUIRE(why);
  CHECK(why->find("no join was accepted on this stream") == 0);
  CHECK(world.thread.on_io([&] { return world.core->view().empty(); }));
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
