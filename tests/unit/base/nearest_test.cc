// SPDX-License-Identifier: Apache-2.0
#include "proto/base/nearest.h"

#include <catch2/catch.hpp>

namespace muster {

TEST_CASE("the nearest word is one that a typing error turns into the given one") {
  CHECK(nearest("statsu", {"run", "status", "stop"}) == "status");
  CHECK(nearest("--standalon3", {"--standalone", "--stdin"}) == "--standalone");
  CHECK(nearest("--events-file", {"--tee", "--events"}) == "--events");
  CHECK(nearest("rnu", {"run"}) == "run");
}

TEST_CASE("no guess is made where none is near for the length of the word") {
  CHECK(nearest("foo", {"aio", "fp16", "bf16"}).empty());
  CHECK(nearest("x", {"--help", "run"}).empty());
  CHECK(nearest("", {"run"}).empty());
  CHECK(nearest("foo.bar", {"status", "stop", "chaos"}).empty());
  CHECK(nearest(std::string(1U << 20U, 'r'), {"run"}).empty());
}

}  // namespace muster
