// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/answer_pacer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::rendezvous {
namespace {

constexpr std::size_t kRoom = 100000;

// Streams that nobody reads: what is said waits until drain().
struct Streams {
  Streams() {
    outgoing = std::make_shared<Outgoing>(kRoom, [this] { ++drained; });
    pacer.emplace(outgoing, [this](SessionId session, const StoreReply& reply) {
      said.push_back(session);
      outgoing->add(reply.value.size());
      most = std::max(most, outgoing->bytes());
    });
  }
  void drain() {
    outgoing->subtract(outgoing->bytes());
    if (std::exchange(drained, 0) > 0) pacer->go_on();
  }
  Store::Answer answer(SessionId session) const { return {session, {}, value}; }

  int drained = 0;
  std::vector<SessionId> said;
  std::size_t most = 0;
  std::shared_ptr<Outgoing> outgoing;
  std::optional<AnswerPacer> pacer;
  Store::Value value = std::make_shared<const std::string>(30000, 'x');
};

}  // namespace

TEST_CASE("large answers wait for room, in order, and all are said", "[answer_pacer]") {
  Streams streams;
  Store::Answers answers;
  for (SessionId session = 1; session <= 1000; ++session)
    answers.push_back(streams.answer(session));
  streams.pacer->take(std::move(answers));
  CHECK(streams.said.size() == 4);  // the fourth goes beyond
  CHECK(streams.pacer->held() == 996);
  int rounds = 0;
  for (; streams.said.size() < 1000; ++rounds)
    streams.drain();
  CHECK(rounds == 249);
  CHECK(streams.most == 120000);
  CHECK(std::is_sorted(streams.said.begin(), streams.said.end()));
  CHECK(streams.pacer->held() == 0);
  streams.drain();
  CHECK(streams.drained == 0);  // nobody waits for room any more
}

TEST_CASE("small answers wait for nobody", "[answer_pacer]") {
  Streams streams;
  streams.outgoing->add(kRoom);
  Store::Answers answers;
  answers.push_back(streams.answer(1));
  answers.push_back({2, {}, std::make_shared<const std::string>("v")});
  answers.push_back({3, {}, nullptr});
  streams.pacer->take(std::move(answers));
  CHECK(streams.said == std::vector<SessionId>{2, 3});
  streams.drain();
  CHECK(streams.said == std::vector<SessionId>{2, 3, 1});
}

TEST_CASE("who asks without reading has its own stream's bounds", "[answer_pacer]") {
  Streams streams;
  streams.outgoing->add(kRoom);
  Store::Answers answers;
  for (std::size_t i = 0; i < AnswerPacer::kHeldOfSession + 3; ++i)
    answers.push_back(streams.answer(1));
  answers.push_back(streams.answer(2));
  streams.pacer->take(std::move(answers));
  CHECK(streams.said == std::vector<SessionId>{1, 1, 1});
  CHECK(streams.pacer->held() == AnswerPacer::kHeldOfSession + 1);
}

}  // namespace muster::rendezvous
