// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/shell/store_broker.h"

namespace muster::agent {
namespace {

using Op = StoreRequest::Op;

// Remembers what was sent.
class Line : public ServerLink {
 public:
  void open(Callbacks) override {}
  void send(AgentMessage) override {}
  void store(StoreRequest request) override { sent.push_back(std::move(request)); }
  void close() override {}
  std::vector<StoreRequest> sent;
};

struct Desk {
  Desk() : broker([this] { return now; }) { broker.generation_started(2); }

  StoreBroker::Ticket ask(Op op, std::string key, Generation generation = 2, Duration wait = 0ns) {
    StoreRequest request;
    request.op = op;
    request.key = std::move(key);
    request.generation = generation;
    request.wait = wait;
    return broker.ask(request, [this](absl::StatusOr<StoreReply> reply) {
      answers.push_back(reply.ok() ? "ok " + reply->value : std::string(reply.status().message()));
      codes.push_back(reply.status().code());
    });
  }
  void reply(std::uint64_t id, StoreReply::Status status, std::string value = "") {
    StoreReply out;
    out.id = id;
    out.status = status;
    out.value = std::move(value);
    broker.store_said(out);
  }

  Instant now{100s};
  std::vector<std::string> answers;
  std::vector<absl::StatusCode> codes;
  Line line;
  StoreBroker broker;
};

}  // namespace

TEST_CASE("requests of another generation are stale at once", "[broker]") {
  Desk desk;
  desk.broker.link_up(&desk.line);
  CHECK(desk.ask(Op::kGet, "k", 1) == 0);
  CHECK(desk.ask(Op::kGet, "k", 3) == 0);
  CHECK(desk.codes == std::vector<absl::StatusCode>(2, absl::StatusCode::kAborted));
  CHECK(desk.line.sent.empty());
  desk.broker.generation_ended();
  CHECK(desk.ask(Op::kGet, "k", 2) == 0);
  CHECK(desk.codes.back() == absl::StatusCode::kAborted);
}

TEST_CASE("each reply finds its request", "[broker]") {
  Desk desk;
  desk.broker.link_up(&desk.line);
  const auto first = desk.ask(Op::kGet, "a", 2, 5s);
  const auto second = desk.ask(Op::kSet, "b");
  REQUIRE(desk.line.sent.size() == 2);
  desk.reply(second, StoreReply::Status::kOk, "2");
  desk.reply(first, StoreReply::Status::kOk, "1");
  desk.reply(first, StoreReply::Status::kOk, "again");
  CHECK(desk.answers == std::vector<std::string>{"ok 2", "ok 1"});
  CHECK(desk.broker.open() == 0);
}

TEST_CASE("a short reconnect repeats what may be repeated", "[broker]") {
  Desk desk;
  desk.broker.link_up(&desk.line);
  const auto get = desk.ask(Op::kGet, "a", 2, 5s);
  const auto set = desk.ask(Op::kSet, "b");
  desk.ask(Op::kAdd, "c");
  const auto remove = desk.ask(Op::kDelete, "d");
  desk.broker.link_down();
  CHECK(desk.codes == std::vector{absl::StatusCode::kUnavailable});  // the add
  const auto fresh = desk.ask(Op::kAdd, "e");                        // never sent: may wait
  desk.now = desk.now + 2s;
  desk.line.sent.clear();
  desk.broker.link_up(&desk.line);
  REQUIRE(desk.line.sent.size() == 4);
  CHECK(desk.line.sent[0].id == get);
  CHECK(desk.line.sent[0].wait == 3s);
  CHECK(desk.line.sent[1].id == set);
  CHECK(desk.line.sent[2].id == remove);
  CHECK(desk.line.sent[3].id == fresh);
  // The first try may have deleted it.
  desk.reply(remove, StoreReply::Status::kNotFound);
  CHECK(desk.codes.back() == absl::StatusCode::kOk);
  desk.reply(get, StoreReply::Status::kNotFound);
  CHECK(desk.codes.back() == absl::StatusCode::kNotFound);
}

TEST_CASE("the end answers everybody", "[broker]") {
  Desk desk;
  desk.ask(Op::kGet, "a", 2, 5s);
  desk.ask(Op::kSet, "b");
  desk.broker.generation_ended();
  CHECK(desk.codes == std::vector<absl::StatusCode>(2, absl::StatusCode::kAborted));
  desk.broker.generation_started(3);
  desk.ask(Op::kSet, "c", 3);
  desk.broker.generation_started(3);  // the same one: nothing ends
  CHECK(desk.broker.open() == 1);
  desk.broker.generation_started(4);
  CHECK(desk.broker.open() == 0);
}

TEST_CASE("what is withdrawn is not answered", "[broker]") {
  Desk desk;
  desk.broker.link_up(&desk.line);
  const auto ticket = desk.ask(Op::kGet, "a", 2, 5s);
  desk.broker.withdraw(ticket);
  desk.reply(ticket, StoreReply::Status::kOk);
  CHECK(desk.answers.empty());
  // The server waits no more either; only a get can wait there.
  REQUIRE(desk.line.sent.size() == 2);
  CHECK(desk.line.sent[1].op == Op::kCancel);
  CHECK(desk.line.sent[1].id == ticket);
  desk.broker.withdraw(desk.ask(Op::kSet, "b"));
  desk.broker.withdraw(ticket);
  CHECK(desk.line.sent.size() == 3);
}

TEST_CASE("an answer may ask again", "[broker]") {
  Desk desk;
  desk.broker.link_up(&desk.line);
  StoreRequest request;
  request.op = Op::kSet;
  request.key = "k";
  request.generation = 2;
  int answered = 0;
  desk.broker.ask(request, [&](const absl::StatusOr<StoreReply>&) {
    ++answered;
    desk.broker.ask(request, [&](const absl::StatusOr<StoreReply>&) { ++answered; });
  });
  desk.broker.generation_ended();
  CHECK(answered == 2);
}

}  // namespace muster::agent
