// SPDX-License-Identifier: Apache-2.0
#include "proto/base/json_mistake.h"

#include <string>
#include <utility>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "proto/base/rng.h"

namespace muster {
namespace {

TEST_CASE("a mistake in JSON is named with its place") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "1:1: ends too early: a value is missing"},
      {"{", "1:2: ends too early: a key in double quotes or '}' is missing"},
      {"{\"a\": 1", "1:8: ends too early: ',' or '}' is missing"},
      {"{\"a\": 1,}", "1:9: a ',' too many before '}'"},
      {"{\n  \"a\": [1, 2,\n  ]\n}", "3:3: a ',' too many before ']'"},
      {"{\n  \"a\": 1\n  \"b\": 2\n}", "3:3: expected ',' or '}', not '\"'"},
      {"{\"a\" 1}", "1:6: expected ':', not '1'"},
      {"{a: 1}", "1:2: expected a key in double quotes or '}', not 'a'"},
      {"{'a': 1}",
       "1:2: expected a key in double quotes or '}', not '''; texts stand in double quotes"},
      {"{\"a\": True}", "1:7: expected a value, not 'True'; write true"},
      {"{\"a\": None}", "1:7: expected a value, not 'None'; write null"},
      {"{\"a\": NaN}", "1:7: expected a value, not 'NaN'"},
      {"{\"a\": 01}", "1:7: '01' is not a JSON number"},
      {"{\"a\": 1e999}", "1:7: '1e999' is too large a number"},
      {"// x\n{}", "1:1: expected a value, not '/'; JSON knows no comments"},
      {"{\"a\": \"x}", "1:7: this text has no closing '\"'"},
      {"{\"a\": \"x\n\"}", "1:7: this text has no closing '\"' on its line"},
      {"{\"a\": \"\\x\"}", "1:8: '\\' before 'x' is no JSON escape; '\\\\' is a backslash"},
      {"{\"a\": \"\\ud800\"}", "1:8: '\\u' is not followed by a character"},
      {"{\"a\": \"\xff\"}", "1:8: byte 0xff is not UTF-8"},
      {"{\"\xc3\xa4\xc3\xa4\": }", "1:8: expected a value, not '}'"},
      {"{} {}", "1:4: expected the end, not '{'"},
      {"\x7f"
       "ELF",
       "1:1: expected a value, not byte 0x7f"},
  };
  for (const auto& [text, mistake] : cases)
    CHECK(json_mistake(text) == mistake);
  CHECK(json_mistake(std::string(101, '[')) == "1:101: nested deeper than 100");
}

TEST_CASE("it refuses what the parser refuses, and nothing else") {
  const char* const sound[] = {"{}", " [1, -0.5e-3, \"\\u00e4\\ud83d\\ude00\\n\", true, null] ",
                               "\xef\xbb\xbf{\"a\": {\"b\": [[]]}}", "1e-999",
                               "\"\xf0\x9f\x98\x80\""};
  for (const char* text : sound) {
    CHECK(json_mistake(text).empty());
    CHECK(nlohmann::json::accept(text));
  }
  // Every sound text with one to three bytes changed.
  const std::string pool = "{}[]:,\"\\/u0123456789.eE+-truefalsnN \n'\x01\x80\xc3\xed\xf4";
  Rng rng(7);
  for (const std::string text : sound) {
    for (int round = 0; round < 4000; ++round) {
      std::string changed = text;
      for (std::uint64_t edits = 1 + rng.below(3); edits > 0 && !changed.empty(); --edits) {
        const auto at = static_cast<std::size_t>(rng.below(changed.size()));
        const char byte = pool[static_cast<std::size_t>(rng.below(pool.size()))];
        switch (rng.below(3)) {
          case 0: changed[at] = byte; break;
          case 1: changed.insert(at, 1, byte); break;
          default: changed.erase(at, 1);
        }
      }
      const bool parses = !nlohmann::json::parse(changed, nullptr, false).is_discarded();
      INFO(changed);
      CHECK(json_mistake(changed).empty() == parses);
    }
  }
}

}  // namespace
}  // namespace muster
