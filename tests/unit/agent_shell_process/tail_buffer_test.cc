// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/tail_buffer.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster::agent {
namespace {

TEST_CASE("the last lines come out, without a newline at the end") {
  TailBuffer tail;
  CHECK(tail.last_lines(5, 100).empty());
  tail.append("a\nb\nc\n");
  CHECK(tail.last_lines(2, 100) == "b\nc");
  CHECK(tail.last_lines(20, 100) == "a\nb\nc");
  tail.append("d");
  CHECK(tail.last_lines(2, 100) == "c\nd");
  tail.clear();
  CHECK(tail.last_lines(2, 100).empty());
}

TEST_CASE("the size limit takes whole lines from the end") {
  TailBuffer tail;
  tail.append("first line\nsecond\nthird\n");
  CHECK(tail.last_lines(20, 13) == "second\nthird");
  CHECK(tail.last_lines(20, 12) == "third");
}

TEST_CASE("a single line that is too long keeps its end") {
  TailBuffer tail;
  tail.append(std::string(10'000, 'x') + "END\n");
  const std::string text = tail.last_lines(20, 4096);
  CHECK(text.size() == 4095);
  CHECK(text.ends_with("xEND"));
}

TEST_CASE("at most 64 KiB is answered for") {
  TailBuffer tail;
  for (int i = 0; i < 1000; ++i)
    tail.append(std::string(999, 'y') + "\n");
  CHECK(tail.last_lines(1'000'000, 1U << 30).size() <= TailBuffer::kKept);
  tail.append(std::string(3 * TailBuffer::kKept, 'z') + "\nend");
  CHECK(tail.last_lines(1, 100) == "end");
}

TEST_CASE("all that is kept begins with a whole line") {
  TailBuffer tail;
  tail.append("a\nb");
  CHECK(tail.kept() == "a\nb");
  for (int i = 0; i < 9000; ++i)
    tail.append("line " + std::to_string(10000 + i) + "\n");  // 11 bytes each
  const std::string kept = tail.kept();
  CHECK(kept.size() <= TailBuffer::kKept);
  CHECK(kept.size() > TailBuffer::kKept - 11);
  CHECK(kept.starts_with("line "));
  CHECK(kept.ends_with("line 18999\n"));
  tail.clear();
  CHECK(tail.kept().empty());
}

TEST_CASE("bytes that are no UTF-8 are replaced") {
  TailBuffer tail;
  tail.append("ok \xC3\xA9 bad \xFF\xC3 cut \xE2\x82");
  CHECK(tail.last_lines(1, 100) ==
        "ok \xC3\xA9 bad \xEF\xBF\xBD\xEF\xBF\xBD cut \xEF\xBF\xBD\xEF\xBF\xBD");
  tail.clear();
  tail.append("\xED\xA0\x80 \xC0\x80 \xF5\x80\x80\x80 \xF0\x9F\x98\x80");
  CHECK(tail.last_lines(1, 200).ends_with(" \xF0\x9F\x98\x80"));
  CHECK(tail.last_lines(1, 200).find('\xED') == std::string::npos);
}

TEST_CASE("a progress line counts with its last state") {
  TailBuffer tail;
  tail.append("start\r\n 1%\r 2%\r 3%\r\nboom\n");
  CHECK(tail.last_lines(20, 100) == "start\n 3%\nboom");
}

}  // namespace
}  // namespace muster::agent
