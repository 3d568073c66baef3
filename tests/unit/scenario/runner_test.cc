// SPDX-License-Identifier: Apache-2.0
//
// The runner itself: a golden test is worth as much as its power to fail.
#include "tests/scenario/runner.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace {

using namespace muster;            // NOLINT: a test
using namespace muster::scenario;  // NOLINT: a test

// Says what it was told; rings every 10 s once wound up.
class Echo : public Adapter {
 public:
  Transcript run(Command& command, Instant now) override {
    if (command.name() == "say") {
      Transcript out;
      while (const auto word = command.word())
        out.push_back(*word);
      if (const auto loud = command.text("loud")) out.push_back("LOUD " + *loud);
      return out;
    }
    if (command.name() == "wind") {
      next_ = now + 10s;
      return {};
    }
    command.complain("unknown command: " + command.name());
    return {};
  }
  std::optional<Instant> next_deadline() const override { return next_; }
  Transcript tick(Instant now) override {
    next_ = now + 10s;
    return {"ring"};
  }

 private:
  std::optional<Instant> next_;
};

Result played(const std::string& text) {
  Echo echo;
  return play(text, echo);
}

}  // namespace

TEST_CASE("a scenario that agrees has no problems and rewrites to itself") {
  const std::string text =
      "# head\n\nsay one two\n    one\n    two\nwind\n    (nothing)\n"
      "+25s\n    [10s] ring\n    [20s] ring\n+5s say \"a b\" loud=\"c d\"\n    a b\n    LOUD c d\n";
  const Result result = played(text);
  CHECK(result.problems.empty());
  CHECK(result.rewritten == text);
  CHECK(result.events == 4);
}

TEST_CASE("every kind of difference is a problem that names its line") {
  SECTION("another line") {
    const Result result = played("say one\n    two\n");
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].line == 2);
    CHECK(result.problems[0].what.find("expected: two") != std::string::npos);
    CHECK(result.problems[0].what.find("actual:   one") != std::string::npos);
    CHECK(result.rewritten == "say one\n    one\n");
  }
  SECTION("a line too few") {
    const Result result = played("say one two\n    one\n");
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].line == 2);
  }
  SECTION("a line too many") {
    const Result result = played("say one\n    one\n    two\n");
    REQUIRE(result.problems.size() == 1);
    CHECK(result.problems[0].line == 3);
  }
  SECTION("no transcript at all") {
    CHECK(played("wind\n").problems.size() == 1);
  }
}

TEST_CASE("bad files are refused") {
  CHECK(played("").problems.size() == 1);
  CHECK(played("# only a comment\n").problems.size() == 1);
  CHECK(played("    orphan\nsay one\n    one\n").problems.size() == 1);
  CHECK_FALSE(played("shout\n    (nothing)\n").problems.empty());
  CHECK_FALSE(played("say one volume=3\n    one\n").problems.empty());
  CHECK_FALSE(played("+soon say one\n    one\n").problems.empty());
  CHECK_FALSE(played("say \"one\n    one\n").problems.empty());
}

TEST_CASE("an event due at a deadline comes before the tick") {
  CHECK(played("wind\n    (nothing)\n+10s say x\n    x\n+0s\n    [10s] ring\n").problems.empty());
}

TEST_CASE("arguments are typed") {
  Command command("go to n=3 list=1,2 wait=1.5s yes=yes bad=x");
  CHECK(command.need_word("where") == "to");
  CHECK(command.number_or("n", 0) == 3);
  CHECK(command.numbers("list") == std::vector<std::int64_t>{1, 2});
  CHECK(command.duration("wait") == std::optional<Duration>(1500ms));
  CHECK(command.flag_or("yes", false));
  CHECK(command.error() == std::optional<std::string>("unknown argument: bad=x"));
  CHECK_FALSE(command.number("bad").has_value());
  CHECK(command.error() == std::optional<std::string>("not a number: bad=x"));
}

TEST_CASE("a folder: empty fails, a difference fails, rewriting cures it") {
  std::string pattern = (std::filesystem::temp_directory_path() / "scenario-XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  register_adapter("echo", [] { return std::make_unique<Echo>(); });
  CHECK(play_folder(pattern, "", false) == 1);
  const std::string file = pattern + "/echo_one.txt";
  std::ofstream(file) << "say one\n";
  CHECK(play_folder(pattern, "", false) == 1);
  CHECK(play_folder(pattern, "", true) == 0);
  CHECK(play_folder(pattern, "", false) == 0);
  std::ofstream(pattern + "/stranger_one.txt") << "say one\n    one\n";
  CHECK(play_folder(pattern, "", false) == 1);
  CHECK(play_folder(pattern + "/missing", "", false) == 1);
  std::filesystem::remove_all(pattern);
}
