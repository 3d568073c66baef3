// SPDX-License-Identifier: Apache-2.0
#include "agent/core/traceback_watch.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

const std::string kTraceback =
    "Traceback (most recent call last):\n  File \"train.py\", line 3\nValueError: no such shard\n";
constexpr Instant kStart{100s};

}  // namespace

TEST_CASE("a traceback says since when its writer fails") {
  TracebackWatch watch;
  watch.feed("step 4\nTraceback of the cable: none\n", kStart);
  CHECK_FALSE(watch.failing_since(kStart));
  watch.feed("step 5\n" + kTraceback, kStart + 1s);
  CHECK(watch.failing_since(kStart + 1s) == kStart + 1s);
  CHECK(watch.failing_since(kStart + 2s) == kStart + 1s);
  // It lives: this was not the failure that ends it.
  CHECK_FALSE(watch.failing_since(kStart + 1s + TracebackWatch::kEndsWithin + 1ms));
}

TEST_CASE("tracebacks right after each other are of one failure, others are not") {
  TracebackWatch watch;
  watch.feed(kTraceback, kStart);
  watch.feed("closing connections\n", kStart + 100ms);
  watch.feed(kTraceback + "\nDuring handling of the above exception\n" + kTraceback,
             kStart + 800ms);
  watch.feed(kTraceback, kStart + 1700ms);
  CHECK(watch.failing_since(kStart + 1800ms) == kStart);
  watch.feed(kTraceback, kStart + 2800ms);
  CHECK(watch.failing_since(kStart + 2800ms) == kStart + 2800ms);
}

TEST_CASE("a traceback is found however its first line is cut, and once") {
  for (std::size_t first = 1; first < 40; ++first) {
    for (std::size_t second = first; second < 40; ++second) {
      TracebackWatch watch;
      watch.feed("x\n", kStart);
      watch.feed(kTraceback.substr(0, first), kStart);
      if (second > first) watch.feed(kTraceback.substr(first, second - first), kStart + 1ms);
      watch.feed(kTraceback.substr(second), kStart + 2ms);
      const auto since = watch.failing_since(kStart + 2ms);
      INFO(first << " " << second);
      REQUIRE(since);
      // What follows has only the rest of it.
      watch.feed("y\n", kStart + 1900ms);
      CHECK_FALSE(watch.failing_since(kStart + 2100ms));
    }
  }
}

}  // namespace muster::agent
