// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/quarantine.h"

#include <catch2/catch.hpp>

namespace {

using namespace muster;              // NOLINT: a test
using namespace muster::rendezvous;  // NOLINT: a test

Instant at(Duration since) {
  return {since};
}

}  // namespace

TEST_CASE("so many causes within the window are once too often") {
  QuarantineBook book({2, 60s, 10s});
  CHECK_FALSE(book.blame("a", at(0s)));
  CHECK_FALSE(book.blame("b", at(1s)));
  CHECK_FALSE(book.blame("a", at(61s)));  // the first is too long ago
  CHECK(book.blame("a", at(62s)));
  CHECK(book.blame("a", at(63s)));  // still, where nothing came of it
  CHECK_FALSE(book.confined("a"));
  CHECK(book.confine("a", at(63s)) == at(73s));
  CHECK(book.confined("a"));
  CHECK(book.next_release() == at(73s));
  CHECK(book.due(at(72s)).empty());
  CHECK(book.due(at(73s)) == std::vector<NodeName>{"a"});
  book.release("a");
  CHECK_FALSE(book.confined("a"));
  CHECK_FALSE(book.next_release().has_value());
  CHECK_FALSE(book.blame("a", at(74s)));  // it starts anew
}

TEST_CASE("without a rule nobody is blamed") {
  QuarantineBook book({});
  CHECK_FALSE(book.blame("a", at(0s)));
  CHECK(book.offenders().empty());
}

TEST_CASE("each quarantine is twice as long as the one before, up to a day") {
  QuarantineBook book({1, 60s, 600s});
  Instant now = at(0s);
  Duration length = 600s;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(book.blame("a", now));
    const Instant until = book.confine("a", now);
    CHECK(until - now == length);
    now = until;
    CHECK(book.due(now).size() == 1);
    book.release("a");
    length = std::min<Duration>(2 * length, kLongestQuarantine);
  }
  QuarantineBook longer({1, 60s, 48h});
  for (int i = 0; i < 3; ++i) {
    REQUIRE(longer.blame("a", now));
    CHECK(longer.confine("a", now) == now + 48h);
  }
}

TEST_CASE("a quarantine that is restored is no longer than the rule allows") {
  QuarantineBook book({1, 60s, 10s});
  book.restore("a", {{}, 2, at(1000s)}, at(100s));
  CHECK(book.until("a") == at(120s));
  book.restore("b", {{at(90s)}, 1, std::nullopt}, at(100s));
  CHECK_FALSE(book.confined("b"));
}

TEST_CASE("what is known of nodes that come and go is bounded") {
  QuarantineBook book({2, 1h, 10s});
  book.blame("bad", at(0s));
  REQUIRE(book.blame("bad", at(0s)));
  book.confine("bad", at(0s));
  for (int i = 0; i < 5000; ++i)
    book.blame("n" + std::to_string(i), at(1s));
  CHECK(book.offenders().size() <= 1024);
  CHECK(book.confined("bad"));
}
