// SPDX-License-Identifier: Apache-2.0
#include "agent/core/line_prefix.h"

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

std::string made(std::string_view text) {
  CHECK(line_prefix_mistake(text).empty());
  return make_line_prefix(text, {"train", "gpu-3", 4, 17, 1});
}

TEST_CASE("names in a line's prefix are replaced, double braces are braces") {
  CHECK(made(kDefaultLinePrefix) == "[17] ");
  CHECK(made("{node}/{local_rank} {job}.{generation}: ") == "gpu-3/1 train.4: ");
  CHECK(made("") == "");
  CHECK(made("plain|") == "plain|");
  CHECK(made("{{{rank}}} }}{{") == "{17} }{");
  CHECK(made("{{rank}}") == "{rank}");
}

TEST_CASE("what a prefix cannot be is said with what it can") {
  CHECK(line_prefix_mistake("{rang}") ==
        "{rang} is not one of {rank}, {local_rank}, {node}, {job}, {generation}");
  CHECK(line_prefix_mistake("{}") ==
        "{} is not one of {rank}, {local_rank}, {node}, {job}, {generation}");
  CHECK(line_prefix_mistake("{ rank}").starts_with("{ rank} is not one of"));
  CHECK(line_prefix_mistake("[{rank]") == "has a lone '{' ({{ stands for it)");
  CHECK(line_prefix_mistake("{{{") == "has a lone '{' ({{ stands for it)");
  CHECK(line_prefix_mistake("{rank}} ") == "has a lone '}' (}} stands for it)");
  CHECK(line_prefix_mistake("a\nb") == "contains a line end");
  CHECK(line_prefix_mistake("a\rb") == "contains a line end");
  CHECK(line_prefix_mistake(std::string(201, 'x')) == "is longer than 200 bytes");
  CHECK(line_prefix_mistake(std::string(200, 'x')).empty());
}

TEST_CASE("torchrun's templates mean the same") {
  CHECK(line_prefix_of_torchrun("[${role_name}${local_rank}]:") == "[default{local_rank}]:");
  CHECK(line_prefix_of_torchrun("$rank|") == "{rank}|");
  CHECK(line_prefix_of_torchrun("${rank}$rank$$ {x}") == "{rank}{rank}$ {{x}}");
  // As Python's safe_substitute: what is no name of its stays.
  CHECK(line_prefix_of_torchrun("${hostname} $ranks ${rank $") == "${{hostname}} $ranks ${{rank $");
  CHECK(line_prefix_of_torchrun("") == "");
  CHECK(made(line_prefix_of_torchrun("{${role_name}} ${local_rank}/$rank: ")) ==
        "{default} 1/17: ");
}

TEST_CASE("any text that torchrun takes becomes one that is taken here") {
  const std::string pool = "${}ark_n1 ";
  std::string text(5, ' ');
  for (int number = 0; number < 59049; ++number) {
    int left = number;
    for (char& c : text) {
      c = pool[static_cast<std::size_t>(left % 9)];
      left /= 9;
    }
    INFO(text);
    REQUIRE(line_prefix_mistake(line_prefix_of_torchrun(text)).empty());
  }
}

}  // namespace
}  // namespace muster::agent
