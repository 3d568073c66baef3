// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/line_splitter.h"

#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

using Pieces = std::vector<std::pair<PieceKind, std::string>>;

struct Fixture {
  explicit Fixture(bool updates) : splitter(updates) {}

  LineSplitter splitter;
  Pieces pieces;
  LineSplitter::Sink sink = [this](PieceKind kind, std::string_view text) {
    pieces.emplace_back(kind, text);
  };

  void feed(std::string_view data) { splitter.feed(data, sink); }

  std::string all() const {
    std::string text;
    for (const auto& piece : pieces)
      text += piece.second;
    return text;
  }
};

constexpr auto kWhole = PieceKind::kWhole;
constexpr auto kPart = PieceKind::kPart;
constexpr auto kUpdate = PieceKind::kUpdate;

TEST_CASE("whole lines go out at once, the rest is kept") {
  Fixture f(false);
  f.feed("one\ntwo\nthr");
  CHECK(f.pieces == Pieces{{kWhole, "one\ntwo\n"}});
  f.feed("ee");
  CHECK(f.pieces.size() == 1);
  f.feed("\nfour\n");
  CHECK(f.pieces == Pieces{{kWhole, "one\ntwo\n"}, {kWhole, "three\n"}, {kWhole, "four\n"}});
  CHECK_FALSE(f.splitter.has_partial());
}

TEST_CASE("a quiet stream shows its partial line, and goes on with it") {
  Fixture f(false);
  f.feed("Name: ");
  CHECK(f.splitter.has_partial());
  f.splitter.quiet(f.sink);
  CHECK(f.pieces == Pieces{{kPart, "Name: "}});
  CHECK_FALSE(f.splitter.has_partial());
  f.feed("x\n");
  CHECK(f.pieces.back() == std::pair(kWhole, std::string("x\n")));
}

TEST_CASE("the end hands out what is left") {
  Fixture f(false);
  f.feed("no newline");
  f.splitter.finish(f.sink);
  CHECK(f.pieces == Pieces{{kPart, "no newline"}});
  f.splitter.finish(f.sink);
  CHECK(f.pieces.size() == 1);
}

TEST_CASE("off a terminal only the last state of a progress line is left") {
  Fixture f(false);
  f.feed("\r 10%\r 20%");
  f.feed("\r 99%");
  CHECK_FALSE(f.splitter.has_partial());
  f.splitter.quiet(f.sink);
  CHECK(f.pieces.empty());
  f.feed("\r100%\nnext\n");
  CHECK(f.all() == "100%\nnext\n");
}

TEST_CASE("a progress line that ends with its stream keeps its last state") {
  for (const std::string text : {"a\rb\r", "a\rb"}) {
    Fixture f(false);
    f.feed(text);
    f.splitter.finish(f.sink);
    CHECK(f.pieces == Pieces{{kPart, "b"}});
  }
}

TEST_CASE("on a terminal each state comes out, the last one for good") {
  Fixture f(true);
  f.feed("\r 10%\r 20%");
  CHECK(f.pieces == Pieces{{kUpdate, " 10%"}});
  CHECK(f.splitter.has_partial());
  f.splitter.quiet(f.sink);
  f.splitter.quiet(f.sink);
  CHECK(f.pieces == Pieces{{kUpdate, " 10%"}, {kUpdate, " 20%"}});
  f.feed("\n");
  CHECK(f.pieces.back() == std::pair(kWhole, std::string(" 20%\n")));
}

TEST_CASE("CR LF is a line end, also when cut in two") {
  Fixture f(true);
  f.feed("dos\r\nmore\r");
  f.feed("\nlast\r\r\n");
  CHECK(f.all().starts_with("dos\r\nmore\r\n"));
  CHECK(f.pieces[0] == std::pair(kWhole, std::string("dos\r\n")));
  CHECK(f.pieces[1] == std::pair(kWhole, std::string("more\r\n")));
}

TEST_CASE("a line is overwritten by what is drawn over it, not by the way back to its begin") {
  for (const bool updates : {false, true}) {
    Fixture f(updates);
    f.feed("Traceback\r\r\nx\r\r\r\n");
    CHECK(f.all() == "Traceback\r\nx\r\n");
    f.pieces.clear();
    f.feed("p\r");
    f.feed("\r\n");
    CHECK(f.all() == "p\r\n");
    f.pieces.clear();
    f.feed("last\r\r");
    f.splitter.finish(f.sink);
    CHECK(f.pieces == Pieces{{kPart, "last"}});
  }
}

TEST_CASE("an endless line is cut at the limit, nothing is lost") {
  Fixture f(false);
  const std::string text(kLongestLine * 3 + 17, 'x');
  for (std::size_t at = 0; at < text.size(); at += 1000)
    f.feed(text.substr(at, 1000));
  for (const auto& [kind, piece] : f.pieces) {
    CHECK(kind == kPart);
    CHECK(piece.size() <= kLongestLine);
  }
  f.feed("\n");
  CHECK(f.all() == text + "\n");
}

TEST_CASE("any bytes, cut anywhere, come out as they went in") {
  std::string text;
  std::uint64_t state = 42;
  for (int i = 0; i < 300'000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const char byte = static_cast<char>(state >> 56);
    text += byte == '\r' ? '\n' : byte;
  }
  for (const std::size_t step : {1UL, 7UL, 4096UL, 100'000UL}) {
    Fixture f(false);
    for (std::size_t at = 0; at < text.size(); at += step)
      f.feed(text.substr(at, step));
    f.splitter.finish(f.sink);
    CHECK((f.all() == text));
    for (const auto& [kind, piece] : f.pieces) {
      if (kind == kWhole) {
        CHECK(piece.back() == '\n');
      } else {
        CHECK(piece.find('\n') == std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace muster::agent
