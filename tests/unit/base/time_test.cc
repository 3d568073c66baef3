// SPDX-License-Identifier: Apache-2.0
#include "proto/base/time.h"

#include <catch2/catch.hpp>

#include "proto/base/job.h"

namespace muster {
namespace {

TEST_CASE("durations read as the contract writes them") {
  CHECK(parse_duration("500ms") == 500ms);
  CHECK(parse_duration("30s") == 30s);
  CHECK(parse_duration("5m") == 5min);
  CHECK(parse_duration("1h") == 1h);
  CHECK(parse_duration("1.5h") == 90min);
  CHECK(parse_duration("2") == 2s);
  CHECK(parse_duration("0.25") == 250ms);
  CHECK(parse_duration("0") == 0s);
}

TEST_CASE("what is not a duration is refused") {
  for (const char* text :
       {"", "s", "ms", "-1s", "+1s", "1 s", "1d", "1e3s", "inf", "nan", "1s1", "100000h", "0x10"}) {
    INFO(text);
    CHECK_FALSE(parse_duration(text).has_value());
  }
}

TEST_CASE("durations are written in the form that reads back exactly") {
  for (const Duration duration : {Duration(0s), Duration(500ms), Duration(30s), Duration(5min),
                                  Duration(1h), Duration(90min), Duration(1500ms), Duration(1ns)}) {
    INFO(format_duration(duration));
    CHECK(parse_duration(format_duration(duration)) == duration);
  }
  CHECK(format_duration(90s) == "90s");
  CHECK(format_duration(10min) == "10m");
}

TEST_CASE("measured times are rounded for people") {
  CHECK(format_measured(Duration(2000062384)) == "2s");
  CHECK(format_measured(Duration(500058723)) == "500ms");
  CHECK(format_measured(61400ms) == "61s");
}

TEST_CASE("signals have names in both directions") {
  CHECK(signal_name(9) == "SIGKILL");
  CHECK(signal_name(40) == "SIG40");
  CHECK(signal_number("KILL") == 9);
  CHECK(signal_number("SIGTERM") == 15);
  CHECK(signal_number("10") == 10);
  CHECK_FALSE(signal_number("NOPE").has_value());
  CHECK_FALSE(signal_number("0").has_value());
  CHECK_FALSE(signal_number("65").has_value());
}

}  // namespace
}  // namespace muster
