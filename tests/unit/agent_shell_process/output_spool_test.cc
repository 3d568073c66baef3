// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/output_spool.h"

#include <filesystem>
#include <memory>
#include <stdlib.h>
#include <string>

#include <catch2/catch.hpp>

#include "agent/shell/output_writer.h"

namespace muster::agent {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;

struct Fixture {
  Fixture() {
    char name[] = "/tmp/muster-spool-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    folder = name;
  }
  ~Fixture() { std::filesystem::remove_all(folder); }

  // Numbered lines of 1 KiB; returns all of them.
  std::string push_lines(OutputSpool& spool, std::size_t count) {
    std::string all;
    for (std::size_t line = 0; line < count; ++line) {
      std::string text = std::to_string(next++);
      text.resize(1023, '.');
      text += '\n';
      all += text;
      spool.push({target, text, nullptr});
    }
    return all;
  }

  static std::string pop_all(OutputSpool& spool) {
    std::string all;
    while (!spool.empty())
      all += spool.pop().bytes;
    return all;
  }

  std::string folder;
  std::shared_ptr<OutputTarget> target = std::make_shared<OutputTarget>();
  std::size_t next = 0;
};

TEST_CASE_METHOD(Fixture, "spool: memory first, then a file without a name, in order") {
  OutputSpool spool({folder, 8 * 1024, 4 * kMiB});
  const std::string all = push_lines(spool, 1000);
  CHECK(spool.size() == all.size());
  CHECK(std::filesystem::is_empty(folder));
  CHECK(pop_all(spool) == all);
  CHECK(spool.size() == 0);
  // Empty again, it begins in memory, and the ring goes on working however often it wraps.
  std::string in;
  std::string out;
  for (int round = 0; round < 40; ++round) {
    in += push_lines(spool, 700);
    for (int piece = 0; piece < 10 && !spool.empty(); ++piece)
      out += spool.pop().bytes;
  }
  out += pop_all(spool);
  CHECK(out == in);
  CHECK(spool.take_dropped() == 0);
}

TEST_CASE_METHOD(Fixture, "spool: each target has its own bytes") {
  OutputSpool spool({folder, 0, 4 * kMiB});
  const auto other = std::make_shared<OutputTarget>();
  spool.push({target, "a\n", nullptr});
  spool.push({target, "b\n", nullptr});
  spool.push({other, "c\n", nullptr});
  spool.push({target, "d\n", nullptr});
  OutputChunk chunk = spool.pop();
  CHECK((chunk.target == target && chunk.bytes == "a\nb\n"));
  chunk = spool.pop();
  CHECK((chunk.target == other && chunk.bytes == "c\n"));
  chunk = spool.pop();
  CHECK((chunk.target == target && chunk.bytes == "d\n"));
  CHECK(spool.empty());
}

TEST_CASE_METHOD(Fixture, "spool: a full ring loses its oldest whole lines, and counts them") {
  OutputSpool spool({folder, 8 * 1024, 2 * kMiB});
  CHECK_FALSE(spool.nearly_full());
  const std::string all = push_lines(spool, 10000);
  CHECK(spool.nearly_full());
  CHECK(spool.size() <= 2 * kMiB + 8 * 1024);
  const std::uint64_t dropped = spool.take_dropped();
  const std::string rest = pop_all(spool);
  CHECK(rest.size() + dropped == all.size());
  // What memory had, then the newest.
  CHECK(rest.substr(0, 8 * 1024) == all.substr(0, 8 * 1024));
  CHECK(rest.substr(8 * 1024) == all.substr(8 * 1024 + dropped));
  CHECK(rest.size() > kMiB);
}

TEST_CASE_METHOD(Fixture, "spool: a line cut by the gap is ended") {
  OutputSpool spool({folder, 4, 1 * kMiB});
  spool.push({target, "part", nullptr});
  push_lines(spool, 3000);
  CHECK(spool.take_dropped() > 0);
  CHECK(spool.pop().bytes == "part");
  CHECK(spool.pop().bytes.front() == '\n');
}

TEST_CASE_METHOD(Fixture, "spool: without a place for the file memory keeps the newest") {
  OutputSpool spool({folder + "/missing", 64 * 1024, 4 * kMiB});
  const std::string all = push_lines(spool, 1000);
  const std::uint64_t dropped = spool.take_dropped();
  CHECK(dropped == all.size() - 64 * 1024);
  CHECK(pop_all(spool) == all.substr(dropped));
}

TEST_CASE_METHOD(Fixture, "spool: without a folder nothing is ever dropped") {
  OutputSpool spool(SpoolLimits{{}, 16, 16});
  const std::string all = push_lines(spool, 1000);
  CHECK(pop_all(spool) == all);
}

}  // namespace
}  // namespace muster::agent
