// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/line_filter.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/shell/line_splitter.h"

namespace muster::agent {
namespace {

// What is picked when the text comes in pieces of `step` bytes; 0: all at once.
std::string picked(std::vector<std::string> texts, std::string_view data, std::size_t step = 0,
                   const std::string& prefix = "") {
  LineFilter filter(std::move(texts), prefix);
  std::string all;
  const auto sink = [&all](const std::string& lines) {
    CHECK(lines.ends_with('\n'));
    all += lines;
  };
  if (step == 0) step = data.size() + 1;
  for (std::string_view rest = data; !rest.empty();) {
    filter.feed(rest.substr(0, step), sink);
    rest.remove_prefix(std::min(step, rest.size()));
  }
  filter.finish(sink);
  return all;
}

TEST_CASE("whole lines with any of the texts are picked, however they come in") {
  const std::string_view data = "one\ntwo and three\n\nthree\ntwo\nend with three";
  for (std::size_t step = 0; step < 9; ++step) {
    INFO(step);
    CHECK(picked({"three"}, data, step) == "two and three\nthree\nend with three\n");
    CHECK(picked({"one", "nd th"}, data, step) == "one\ntwo and three\n");
    CHECK(picked({"four"}, data, step).empty());
    CHECK(picked({"o"}, data, step, "[2] ") == "[2] one\n[2] two and three\n[2] two\n");
  }
}

TEST_CASE("a text is not found across a line end") {
  CHECK(picked({"ab"}, "a\nb\n").empty());
  CHECK(picked({"a\nb"}, "a\nb\n").empty());
}

TEST_CASE("a progress line is its bytes") {
  CHECK(picked({"loss"}, "\rstep 1\rstep 2 loss 3\n", 4) == "\rstep 1\rstep 2 loss 3\n");
}

TEST_CASE("a line above the limit is cut, and picked from the piece on that has the text") {
  const std::string filler(kLongestLine, 'x');
  for (const std::size_t step : {std::size_t{0}, std::size_t{1000}, std::size_t{65536}}) {
    INFO(step);
    // At the begin: all of it, in pieces.
    const std::string first = "needle" + filler + filler + "\nnext\n";
    std::string all = picked({"needle"}, first, step);
    CHECK(all.size() == 6 + 2 * kLongestLine + 3);
    CHECK(all.starts_with("needlexx"));
    CHECK(std::count(all.begin(), all.end(), '\n') == 3);
    // Across a cut.
    std::string across = std::string(kLongestLine - 3, 'x') + "needle" + filler + "\nneedle\n";
    all = picked({"needle"}, across, step);
    CHECK(all.find("needlexxx") != std::string::npos);
    CHECK(all.ends_with("\nneedle\n"));
    // Nowhere.
    CHECK(picked({"needle"}, filler + filler + "\nx\n", step).empty());
    // In the last piece, which the stream ends with.
    CHECK(picked({"needle"}, filler + filler + "needle", step).ends_with("needle\n"));
  }
}

TEST_CASE("a line of just the limit, and a text of one byte") {
  const std::string line = std::string(kLongestLine - 1, 'x') + "n";
  CHECK(picked({"n"}, line + "\n", 4096) == line + "\n");
  CHECK(picked({"n"}, line + "\nn\n", 65536) == line + "\nn\n");
  CHECK(picked({"n"}, "m" + line + "\nm\n", 65536).ends_with("n\n"));
}

TEST_CASE("memory is bounded where nothing is picked") {
  LineFilter filter({"needle"}, "");
  const std::string piece(1U << 20, 'x');
  for (int i = 0; i < 64; ++i)
    filter.feed(piece, [](const std::string&) { FAIL("picked"); });
  bool found = false;
  filter.feed("needle\n", [&](const std::string& lines) {
    found = true;
    CHECK(lines.size() <= kLongestLine + 1);
  });
  CHECK(found);
}

}  // namespace
}  // namespace muster::agent
