// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/sqlite_journal.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sqlite3.h>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace muster::rendezvous {
namespace {

std::string file_in(const testing::TempDir& folder) {
  return folder.path() + "/journal.db";
}

// A run of two nodes in the middle of its first generation, with a cause on one of them.
Persist some_run(const std::string& job) {
  Persist change;
  change.record.spec.job = job;
  change.record.spec.max_nodes = 2;
  change.record.run = "run-of-" + job;
  change.record.epoch = 1;
  change.record.phase = Phase::kRunning;
  change.record.generation = 0;
  change.record.started = 1'700'000'000'000'000;
  change.record.running = 1'700'000'000'500'000;
  change.progress.best_step = 7;
  LifeRecord life;
  life.generation = 0;
  life.ranks = {{"a", 0, 0, 2}, {"b", 1, 2, 1}};
  life.master_addr = "10.0.0.1";
  life.master_port = 20000;
  change.life = life;
  for (const char* name : {"a", "b"}) {
    NodeRecord node;
    node.node = name;
    node.member = MemberRecord();
    node.member->facts.name = name;
    node.member->incarnation = 3;
    node.member->work = 0;
    node.member->works = true;
    change.nodes.push_back(node);
  }
  CauseRecord cause;
  cause.failure.node = "b";
  cause.failure.exit_code = 1;
  cause.hang = Hang{true, false, 7};
  cause.spoke = 1'700'000'000'500'000;
  cause.failure.stderr_tail = std::string("a\0b\xff", 4);
  cause.reported = cause.happened = 1'700'000'000'600'000;
  change.nodes[1].causes.push_back(cause);
  return change;
}

std::vector<RunRecord> in_memory(const std::vector<Action>& actions) {
  std::vector<RunRecord> runs;
  write_down(actions, runs);
  return runs;
}

bool same(const std::vector<RunRecord>& a, const std::vector<RunRecord>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.job == y.job && x.progress == y.progress && x.life == y.life && x.nodes == y.nodes;
  });
}

void write_all(const std::string& path, const std::vector<Action>& actions) {
  auto journal = open_sqlite_journal(path);
  REQUIRE(journal.ok());
  REQUIRE((*journal)->commit(actions).ok());
}

std::string told(const std::string& path) {
  auto journal = open_sqlite_journal(path);
  if (!journal.ok()) return std::string(journal.status().message());
  const auto contents = (*journal)->read();
  return contents.ok() ? "" : std::string(contents.status().message());
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replace(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void execute(const std::string& path, const char* sql) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  CHECK(sqlite3_exec(database, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(database);
}

}  // namespace

TEST_CASE("a journal gives back what was written, over and over", "[journal]") {
  const testing::TempDir folder;
  std::vector<Action> actions{some_run("one"), some_run("two")};
  write_all(file_in(folder), actions);

  Persist later = some_run("one");
  later.record.restarts_used = 1;
  later.life.reset();
  later.nodes.erase(later.nodes.begin());
  later.nodes[0].member.reset();
  later.removed = {"a"};
  actions.emplace_back(later);
  {
    auto journal = open_sqlite_journal(file_in(folder));
    REQUIRE(journal.ok());
    auto before = (*journal)->read();
    REQUIRE(before.ok());
    CHECK(before->runs.size() == 2);
    const std::vector<Action> more{later, Forget{"two", "run-of-two"}};
    REQUIRE((*journal)->commit(more).ok());
  }
  actions.emplace_back(Forget{"two", "run-of-two"});
  auto journal = open_sqlite_journal(file_in(folder));
  REQUIRE(journal.ok());
  const auto contents = (*journal)->read();
  INFO(contents.status());
  REQUIRE(contents.ok());
  CHECK(same(contents->runs, in_memory(actions)));
}

TEST_CASE("the workers' keys live as long as their generation", "[journal]") {
  const testing::TempDir folder;
  const std::string binary("\0\xff", 2);
  {
    auto journal = open_sqlite_journal(file_in(folder));
    REQUIRE(journal.ok());
    REQUIRE((*journal)->put({"one", 0, "kept", binary}).ok());
    REQUIRE((*journal)->put({"one", 0, "empty", ""}).ok());
    REQUIRE((*journal)->put({"one", 0, "gone", "x"}).ok());
    REQUIRE((*journal)->put({"one", 0, "gone", std::nullopt}).ok());
    REQUIRE((*journal)->put({"one", 1, "kept", "other generation"}).ok());
    const std::vector<Action> closes{CloseStore{"one", 1}};
    REQUIRE((*journal)->commit(closes).ok());
  }
  auto journal = open_sqlite_journal(file_in(folder));
  REQUIRE(journal.ok());
  const auto contents = (*journal)->read();
  REQUIRE(contents.ok());
  REQUIRE(contents->keys.size() == 2);
  CHECK(contents->keys[0].key == "empty");
  CHECK(contents->keys[0].value == "");
  CHECK(contents->keys[1].key == "kept");
  CHECK(contents->keys[1].value == binary);
}

TEST_CASE("a journal is one process's", "[journal]") {
  const testing::TempDir folder;
  auto first = open_sqlite_journal(file_in(folder));
  REQUIRE(first.ok());
  const auto second = open_sqlite_journal(file_in(folder));
  REQUIRE_FALSE(second.ok());
  CHECK(absl::IsAborted(second.status()));
  CHECK(second.status().message() == file_in(folder) + " is in use by another process");
}

TEST_CASE("what is not our journal is refused, with what to do", "[journal]") {
  const testing::TempDir folder;
  const std::string aside =
      "; to begin anew, which forgets its jobs, move " + file_in(folder) + "* away";
  SECTION("some other file") {
    replace(file_in(folder), std::string(4096, 'x'));
    CHECK(told(file_in(folder)) == file_in(folder) + " is not a journal" + aside);
  }
  SECTION("another program's database") {
    execute(file_in(folder), "CREATE TABLE t(x)");
    CHECK(told(file_in(folder)) == file_in(folder) + " belongs to another program" + aside);
  }
  SECTION("a newer format") {
    write_all(file_in(folder), {some_run("one")});
    execute(file_in(folder), "PRAGMA user_version = 2");
    CHECK(told(file_in(folder)) ==
          file_in(folder) +
              " has format 2, and this version of muster knows 1: start the version that wrote it" +
              aside);
  }
  SECTION("a value that was changed") {
    write_all(file_in(folder), {some_run("one")});
    execute(file_in(folder), "UPDATE nodes SET record = CAST(record || x'00' AS BLOB)");
    CHECK(told(file_in(folder)) == file_in(folder) + " is damaged (a checksum is wrong)" + aside);
  }
  SECTION("a record that no server writes") {
    Persist change = some_run("one");
    change.life.reset();
    write_all(file_in(folder), {change});
    CHECK(told(file_in(folder)) ==
          file_in(folder) +
              " is damaged (run run-of-one: phase: runs a generation that is not there)" + aside);
  }
  SECTION("a folder in its place") {
    std::filesystem::create_directory(file_in(folder));
    CHECK(told(file_in(folder)) == file_in(folder) + " is not a file");
  }
  SECTION("the log of a file that is gone") {
    replace(file_in(folder) + "-wal", "x");
    CHECK(told(file_in(folder)) ==
          file_in(folder) + " is gone, and what was last written to it is not" + aside);
  }
}

TEST_CASE("a damaged journal is never read as if it were whole", "[journal]") {
  const testing::TempDir folder;
  const std::vector<Action> actions{some_run("one"), some_run("two")};
  write_all(file_in(folder), actions);
  const std::string whole = bytes_of(file_in(folder));
  const std::string mark = bytes_of(file_in(folder) + "-mark");
  const std::vector<RunRecord> truth = in_memory(actions);
  int noticed = 0;
  for (std::size_t at = 0; at < whole.size(); at += 61) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    replace(file_in(folder), bytes);
    replace(file_in(folder) + "-mark", mark);
    auto journal = open_sqlite_journal(file_in(folder));
    if (!journal.ok()) {
      ++noticed;
      continue;
    }
    const auto contents = (*journal)->read();
    INFO("byte " << at);
    if (!contents.ok()) {
      ++noticed;
      CHECK(contents.status().message().find(file_in(folder)) == 0);
    } else {
      CHECK(same(contents->runs, truth));  // it hit what is not in use
    }
  }
  CHECK(noticed > 0);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, whole.size() - 4096}) {
    replace(file_in(folder), whole.substr(0, length));
    replace(file_in(folder) + "-mark", mark);
    INFO(length);
    CHECK_FALSE(told(file_in(folder)).empty());
  }
}

}  // namespace muster::rendezvous
