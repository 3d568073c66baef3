// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/store.h"

#include <limits>

#include <catch2/catch.hpp>

#include "proto/base/rng.h"

namespace muster::rendezvous {
namespace {

using Op = StoreRequest::Op;
using Status = StoreReply::Status;

StoreRequest request(Op op, std::uint64_t id, std::string key, std::string value = "",
                     Duration wait = 0ns) {
  StoreRequest out;
  out.id = id;
  out.generation = 3;
  out.op = op;
  out.key = std::move(key);
  out.value = std::move(value);
  out.wait = wait;
  return out;
}

StoreRequest addition(std::uint64_t id, std::string key, std::int64_t delta) {
  StoreRequest out = request(Op::kAdd, id, std::move(key));
  out.delta = delta;
  return out;
}

// One answer, to session 1.
StoreReply only(const Store::Answers& answers) {
  REQUIRE(answers.size() == 1);
  REQUIRE(answers[0].session == 1);
  return answers[0].whole();
}

}  // namespace

TEST_CASE("set, get, add and delete", "[store]") {
  Store store;
  store.open("j", 3);
  const Instant now{};
  CHECK(only(store.ask(1, "j", request(Op::kGet, 10, "a"), now)).status == Status::kNotFound);
  CHECK(only(store.ask(1, "j", request(Op::kSet, 11, "a", "x"), now)).status == Status::kOk);
  const StoreReply got = only(store.ask(1, "j", request(Op::kGet, 12, "a"), now));
  CHECK(got.id == 12);
  CHECK(got.value == "x");
  CHECK(only(store.ask(1, "j", addition(13, "n", 5), now)).number == 5);
  CHECK(only(store.ask(1, "j", addition(14, "n", -7), now)).number == -2);
  CHECK(only(store.ask(1, "j", request(Op::kGet, 15, "n"), now)).value == "-2");
  CHECK(only(store.ask(1, "j", addition(16, "a", 1), now)).status == Status::kRefused);
  CHECK(only(store.ask(1, "j", request(Op::kDelete, 17, "a"), now)).status == Status::kOk);
  CHECK(only(store.ask(1, "j", request(Op::kDelete, 18, "a"), now)).status == Status::kNotFound);
}

TEST_CASE("a sum that does not fit is refused and changes nothing", "[store]") {
  Store store;
  store.open("j", 3);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(only(store.ask(1, "j", addition(1, "n", most), {})).number == most);
  CHECK(only(store.ask(1, "j", addition(2, "n", 1), {})).status == Status::kRefused);
  CHECK(only(store.ask(1, "j", addition(3, "n", 0), {})).number == most);
}

TEST_CASE("those who wait are answered by set, add, time and the end", "[store]") {
  Store store;
  store.open("j", 3);
  const Instant start{10s};
  CHECK(store.ask(1, "j", request(Op::kGet, 1, "a", "", 5s), start).empty());
  CHECK(store.ask(2, "j", request(Op::kGet, 2, "a", "", 9s), start).empty());
  CHECK(store.ask(3, "j", request(Op::kGet, 3, "b", "", 2s), start).empty());
  CHECK(store.waiters() == 3);
  CHECK(store.next_deadline() == start + 2s);

  SECTION("set answers the setter first, then all") {
    const auto answers = store.ask(9, "j", request(Op::kSet, 7, "a", "v"), start);
    REQUIRE(answers.size() == 3);
    CHECK(answers[0].session == 9);
    CHECK(answers[1].session == 1);
    CHECK(answers[1].reply.id == 1);
    CHECK(answers[1].whole().value == "v");
    CHECK(answers[2].session == 2);
    CHECK(store.waiters() == 1);
  }
  SECTION("add counts as set") {
    const auto answers = store.ask(9, "j", addition(7, "b", 4), start);
    REQUIRE(answers.size() == 2);
    CHECK(answers[1].whole().value == "4");
  }
  SECTION("time is up for each alone") {
    CHECK(store.expire(start + 1s).empty());
    const auto first = store.expire(start + 2s);
    REQUIRE(first.size() == 1);
    CHECK(first[0].session == 3);
    CHECK(first[0].reply.status == Status::kNotFound);
    CHECK(store.next_deadline() == start + 5s);
    CHECK(store.expire(start + 60s).size() == 2);
    CHECK_FALSE(store.next_deadline());
  }
  SECTION("the end of the generation answers all: stale") {
    const auto answers = store.close("j", 3);
    REQUIRE(answers.size() == 3);
    for (const auto& answer : answers)
      CHECK(answer.reply.status == Status::kStale);
    CHECK(store.waiters() == 0);
    CHECK_FALSE(store.next_deadline());
    CHECK(only(store.ask(1, "j", request(Op::kSet, 8, "a", "v"), start)).status == Status::kStale);
  }
  SECTION("a lost session waits no more") {
    store.forget(1);
    store.forget(1);
    CHECK(store.waiters() == 2);
    CHECK(store.ask(9, "j", request(Op::kSet, 7, "a", "v"), start).size() == 2);
  }
}

TEST_CASE("a cancelled get is forgotten, and nobody else's", "[store]") {
  Store store;
  store.open("j", 3);
  CHECK(store.ask(1, "j", request(Op::kGet, 1, "a", "", 9s), {}).empty());
  CHECK(store.ask(1, "j", request(Op::kGet, 2, "a", "", 9s), {}).empty());
  CHECK(store.ask(2, "j", request(Op::kGet, 1, "a", "", 9s), {}).empty());
  CHECK(store.ask(1, "j", request(Op::kCancel, 1, "a"), {}).empty());
  CHECK(store.ask(1, "j", request(Op::kCancel, 1, "a"), {}).empty());  // answered or cancelled
  CHECK(store.ask(3, "j", request(Op::kCancel, 2, "a"), {}).empty());
  CHECK(store.waiters() == 2);
  CHECK(store.ask(2, "j", request(Op::kSet, 5, "a", "x"), {}).size() == 3);
  CHECK(store.waiters() == 0);
}

TEST_CASE("key spaces of jobs and generations are apart", "[store]") {
  Store store;
  store.open("j", 3);
  store.open("k", 3);
  store.open("j", 4);
  CHECK(only(store.ask(1, "j", request(Op::kSet, 1, "a", "x"), {})).status == Status::kOk);
  CHECK(only(store.ask(1, "k", request(Op::kGet, 2, "a"), {})).status == Status::kNotFound);
  StoreRequest next = request(Op::kGet, 3, "a");
  next.generation = 4;
  CHECK(only(store.ask(1, "j", next, {})).status == Status::kNotFound);
  next.generation = 5;
  CHECK(only(store.ask(1, "j", next, {})).status == Status::kStale);
  store.open("j", 3);  // again: keeps what is there
  CHECK(only(store.ask(1, "j", request(Op::kGet, 4, "a"), {})).value == "x");
}

TEST_CASE("what is beyond a limit is refused in words", "[store]") {
  Store store(Store::Limits{2, 64, 1});
  store.open("j", 3);
  CHECK(only(store.ask(1, "j", request(Op::kSet, 1, "a", "1"), {})).status == Status::kOk);
  CHECK(only(store.ask(1, "j", request(Op::kSet, 2, "b", "2"), {})).status == Status::kOk);
  const StoreReply third = only(store.ask(1, "j", request(Op::kSet, 3, "c", "3"), {}));
  CHECK(third.status == Status::kRefused);
  CHECK(third.text == "the store has its 2 keys");
  const StoreReply large =
      only(store.ask(1, "j", request(Op::kSet, 4, "a", std::string(70, 'x')), {}));
  CHECK(large.text == "the store is full (64 bytes)");
  CHECK(only(store.ask(1, "j", request(Op::kGet, 5, "a"), {})).value == "1");
  CHECK(store.ask(1, "j", request(Op::kGet, 6, "z", "", 1s), {}).empty());
  CHECK(only(store.ask(1, "j", request(Op::kGet, 7, "y", "", 1s), {})).text ==
        "1 ranks wait for keys of this generation already");
  CHECK(only(store.ask(1, "j", request(Op::kSet, 8, "", "x"), {})).status == Status::kRefused);
  // What was deleted makes room.
  CHECK(only(store.ask(1, "j", request(Op::kDelete, 9, "a"), {})).status == Status::kOk);
  CHECK(only(store.ask(1, "j", request(Op::kSet, 10, "c", "3"), {})).status == Status::kOk);
}

TEST_CASE("all key spaces together have limits too", "[store]") {
  Store::Limits limits;
  limits.all_keys = 2;
  limits.all_bytes = 64;
  limits.all_waiters = 1;
  Store store(limits);
  store.open("j", 3);
  store.open("k", 3);
  CHECK(only(store.ask(1, "j", request(Op::kSet, 1, "a", "1"), {})).status == Status::kOk);
  CHECK(only(store.ask(1, "k", request(Op::kSet, 2, "a", "1"), {})).status == Status::kOk);
  CHECK(only(store.ask(1, "k", request(Op::kSet, 3, "b", "1"), {})).text ==
        "the stores of all jobs of this server have their 2 keys");
  CHECK(only(store.ask(1, "k", addition(4, "n", 1), {})).status == Status::kRefused);
  CHECK(only(store.ask(1, "k", request(Op::kSet, 5, "a", std::string(62, 'x')), {})).text ==
        "the stores of all jobs of this server are full (64 bytes)");
  CHECK(store.ask(1, "j", request(Op::kGet, 6, "z", "", 1s), {}).empty());
  CHECK(only(store.ask(1, "k", request(Op::kGet, 7, "z", "", 1s), {})).text ==
        "1 ranks wait for keys of this server already");
  // A key space that ends makes room, and so does a deleted key.
  CHECK(store.close("j", 3).size() == 1);
  CHECK(only(store.ask(1, "k", request(Op::kSet, 8, "b", std::string(50, 'x')), {})).status ==
        Status::kOk);
  CHECK(store.ask(1, "k", request(Op::kGet, 9, "z", "", 1s), {}).empty());
  CHECK(only(store.ask(1, "k", request(Op::kDelete, 10, "b"), {})).status == Status::kOk);
  CHECK(only(store.ask(1, "k", request(Op::kSet, 11, "c", std::string(60, 'x')), {})).status ==
        Status::kOk);
}

TEST_CASE("those who waited share one value", "[store]") {
  Store store;
  store.open("j", 3);
  constexpr std::size_t kWaiters = 10000;
  for (std::size_t i = 0; i < kWaiters; ++i) {
    REQUIRE(store.ask(i, "j", request(Op::kGet, i, "a", "", 9s), {}).empty());
  }
  const std::string large(kMaxStoreValueBytes, 'x');
  const auto answers = store.ask(kWaiters, "j", request(Op::kSet, 1, "a", large), {});
  REQUIRE(answers.size() == kWaiters + 1);
  CHECK(answers[0].value == nullptr);  // the setter's
  for (std::size_t i = 1; i <= kWaiters; ++i) {
    REQUIRE(answers[i].value == answers[1].value);
    REQUIRE(answers[i].reply.value.empty());
  }
  CHECK(answers[1].whole().value == large);
  CHECK(answers[1].value.use_count() == kWaiters + 1);  // and the store's own
}

TEST_CASE("under random use every request is answered exactly once", "[store]") {
  Rng rng(11);
  Store store(Store::Limits{8, 200, 20});
  std::map<std::uint64_t, SessionId> open;  // request -> session
  std::uint64_t last = 0;
  Instant now{};
  const auto settle = [&](const Store::Answers& answers) {
    for (const auto& answer : answers) {
      const auto found = open.find(answer.reply.id);
      REQUIRE(found != open.end());
      REQUIRE(found->second == answer.session);
      open.erase(found);
    }
  };
  for (int i = 0; i < 20000; ++i) {
    now = now + Duration(rng.below(1000));
    const Generation generation = static_cast<Generation>(rng.below(3));
    switch (rng.below(12)) {
      case 0: store.open("j", generation); break;
      case 1: settle(store.close("j", generation)); break;
      case 2: {
        const SessionId session = rng.below(5);
        store.forget(session);
        std::erase_if(open, [&](const auto& entry) { return entry.second == session; });
        break;
      }
      case 3: settle(store.expire(now)); break;
      default: {
        StoreRequest ask =
            request(static_cast<Op>(rng.below(4)), ++last, "k" + std::to_string(rng.below(12)), "v",
                    Duration(rng.below(3000)));
        ask.generation = generation;
        const SessionId session = rng.below(5);
        open[ask.id] = session;
        settle(store.ask(session, "j", ask, now));
      }
    }
    REQUIRE(open.size() == store.waiters());
  }
}

}  // namespace muster::rendezvous
