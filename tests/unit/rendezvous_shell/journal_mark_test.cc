// SPDX-License-Identifier: Apache-2.0
//
// A journal that lost writes is told from one that ended there.
#include "launcher/rendezvous/shell/journal_mark.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sqlite3.h>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/rendezvous/shell/sqlite_journal.h"
#include "tests/support/temp_dir.h"

namespace muster::rendezvous {
namespace {

namespace fs = std::filesystem;

constexpr int kWrites = 8;
const std::string kOtherBoot = "00000000-1111-2222-3333-444444444444";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replace(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The files of a journal as a server left them that was killed after so many writes; each of the
// last of them holds in its key which one it was.
struct Killed {
  testing::TempDir folder;
  std::string path = folder.path() + "/journal.db";
  std::string log = path + "-wal";
  std::string mark = path + "-mark";
  std::string aside = "; to begin anew, which forgets its jobs, move " + path + "* away";

  explicit Killed(int writes = kWrites, int closed_before = 0) {
    const testing::TempDir own;
    const std::string live = own.path() + "/journal.db";
    if (closed_before > 0) write(live, 0, closed_before, "");
    write(live, closed_before, writes, path);
  }

  static void write(const std::string& live, int from, int to, const std::string& copy) {
    auto journal = open_sqlite_journal(live);
    REQUIRE(journal.ok());
    for (int i = from; i < to; ++i) {
      REQUIRE((*journal)->put({"job", 0, "key" + std::to_string(i), "value"}).ok());
    }
    if (copy.empty()) return;
    for (const char* part : {"", "-wal", "-mark"})
      fs::copy_file(live + part, copy + part);
  }

  void say(const Mark& said) const { replace(mark, text_of(said)); }
};

struct Started {
  std::string refused;  // why it was not taken
  std::string note;
  int keys = 0;
};

Started start(const std::string& path) {
  auto journal = open_sqlite_journal(path);
  if (!journal.ok()) return {std::string(journal.status().message()), "", 0};
  const auto contents = (*journal)->read();
  REQUIRE(contents.ok());
  const int keys = static_cast<int>(contents->keys.size());
  // What was taken can be written to, and is then whole.
  REQUIRE((*journal)->put({"job", 1, "later", "value"}).ok());
  journal->reset();
  const auto again = open_sqlite_journal(path);
  REQUIRE(again.ok());
  const auto later = (*again)->read();
  REQUIRE(later.ok());
  CHECK(later->note.empty());
  CHECK(static_cast<int>(later->keys.size()) == keys + 1);
  return {"", contents->note, keys};
}

// Refused, in these words, and over and over: no file was changed.
void check_refused(const Killed& killed, const std::string& why) {
  const std::string database = bytes_of(killed.path);
  const std::string log = bytes_of(killed.log);
  const std::string mark = bytes_of(killed.mark);
  for (int times = 0; times < 2; ++times) {
    CHECK(start(killed.path).refused == killed.path + " is damaged (" + why + ")" + killed.aside);
    CHECK(bytes_of(killed.path) == database);
    CHECK(bytes_of(killed.log) == log);
    CHECK(bytes_of(killed.mark) == mark);
  }
}

std::string missing(int lost) {
  const std::string end = ": journal.db-wal is cut, altered or gone";
  if (lost == kWrites) return "all of its 8 writes are missing" + end;
  if (lost == 1) return "the last of its 8 writes is missing" + end;
  return "the last " + std::to_string(lost) + " of its 8 writes are missing" + end;
}

// Where each transaction of the log ends: a frame says so by the size of the database.
std::vector<std::size_t> transactions(const std::string& log) {
  constexpr std::size_t kHeader = 32;
  constexpr std::size_t kFrame = 24 + 4096;
  std::vector<std::size_t> ends;
  for (std::size_t at = kHeader; at + kFrame <= log.size(); at += kFrame) {
    if (log.substr(at + 4, 4) != std::string(4, '\0')) ends.push_back(at + kFrame);
  }
  return ends;
}

}  // namespace

TEST_CASE("a mark says what it was told, or nothing", "[journal]") {
  for (const Mark& mark : {Mark{}, Mark{12, kOtherBoot, true}, Mark{INT64_MAX, "", false}}) {
    const std::string text = text_of(mark);
    CHECK(text.size() == text_of({}).size());
    const auto read = mark_in(text);
    REQUIRE(read);
    CHECK(read->commits == mark.commits);
    CHECK(read->boot == mark.boot);
    CHECK(read->closed == mark.closed);
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::string other = text;
      other[at] = static_cast<char>(other[at] ^ 0x01);
      INFO(at);
      CHECK_FALSE(mark_in(other));
      CHECK_FALSE(mark_in(text.substr(0, at)));
    }
    CHECK_FALSE(mark_in(text + "x"));
  }
  CHECK(this_boot().size() == 36);
}

TEST_CASE("a mark says closed only where no log is left", "[journal]") {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/journal.db";
  for (const bool log : {false, true, false}) {
    if (log) replace(path + "-wal", "");
    if (!log) fs::remove(path + "-wal");
    auto writer = MarkWriter::open(path, 3);
    REQUIRE(writer.ok());
    REQUIRE((*writer)->write(4).ok());
    CHECK_FALSE(mark_in(bytes_of(path + "-mark"))->closed);
    writer->reset();
    const auto mark = mark_in(bytes_of(path + "-mark"));
    REQUIRE(mark);
    CHECK(mark->closed != log);
    CHECK(mark->commits == 4);
    CHECK(mark->boot == this_boot());
  }
  fs::remove(path + "-mark");
  fs::create_directory(path + "-mark");
  CHECK(MarkWriter::open(path, 0).status().message() == path + "-mark: Is a directory");
}

TEST_CASE("a journal whose server was killed or closed is taken without a word", "[journal]") {
  SECTION("killed") {
    const Killed killed;
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note.empty());
    CHECK(started.keys == kWrites);
  }
  SECTION("killed between a commit and its mark") {
    const Killed killed;
    killed.say({kWrites - 1, this_boot(), false});
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note.empty());
    CHECK(started.keys == kWrites);
  }
  SECTION("never used") {
    const Killed killed(0);
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note.empty());
  }
  SECTION("killed as it made the journal") {
    const Killed killed(0);
    fs::remove(killed.path);
    fs::remove(killed.log);
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note.empty());
  }
  SECTION("closed, and then the host was restarted") {
    const testing::TempDir folder;
    const std::string path = folder.path() + "/journal.db";
    Killed::write(path, 0, kWrites, "");
    const auto mark = mark_in(bytes_of(path + "-mark"));
    REQUIRE(mark);
    CHECK(mark->closed);
    CHECK(mark->commits == kWrites);
    replace(path + "-mark", text_of({kWrites, kOtherBoot, true}));
    const Started started = start(path);
    CHECK(started.refused.empty());
    CHECK(started.note.empty());
    CHECK(started.keys == kWrites);
  }
}

TEST_CASE("a log with a flipped byte is refused", "[journal]") {
  const Killed killed;
  const std::string whole = bytes_of(killed.log);
  const std::string database = bytes_of(killed.path);
  const std::vector<std::size_t> ends = transactions(whole);
  REQUIRE(ends.size() == kWrites);
  const std::size_t middle = ends[kWrites / 2 - 1];
  const std::size_t last = ends[kWrites - 2];
  for (const auto& [begin, lost] :
       {std::pair{std::size_t{0}, kWrites},  // the log's own header
        std::pair{std::size_t{32}, kWrites}, std::pair{middle, kWrites / 2}, std::pair{last, 1}}) {
    for (const std::size_t byte : {4, 5, 9, 17, 23, 25, 1000, 4119}) {
      if (begin == 0 && byte > 23) continue;
      std::string bytes = whole;
      bytes[begin + byte] = static_cast<char>(bytes[begin + byte] ^ 0x10);
      replace(killed.log, bytes);
      INFO("byte " << byte << " from " << begin);
      check_refused(killed, missing(lost));
    }
  }
  replace(killed.log, whole);
  CHECK(bytes_of(killed.path) == database);
  CHECK(start(killed.path).keys == kWrites);
}

TEST_CASE("a log that is cut or gone is refused", "[journal]") {
  const Killed killed;
  const std::string whole = bytes_of(killed.log);
  const std::vector<std::size_t> ends = transactions(whole);
  REQUIRE(ends.size() == kWrites);
  SECTION("cut") {
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{31}, std::size_t{32}, std::size_t{5000}, ends[0] - 1, ends[0],
          ends[3], ends[6] + 1, ends[7] - 1}) {
      replace(killed.log, whole.substr(0, length));
      const auto kept =
          std::count_if(ends.begin(), ends.end(), [&](std::size_t end) { return end <= length; });
      INFO(length);
      check_refused(killed, missing(kWrites - static_cast<int>(kept)));
    }
  }
  SECTION("gone") {
    fs::remove(killed.log);
    check_refused(killed, missing(kWrites));
  }
  SECTION("gone, and most of it is in the database") {
    const Killed later(kWrites, kWrites - 2);
    fs::remove(later.log);
    check_refused(later, missing(2));
  }
  SECTION("gone, of one write") {
    const Killed one(1);
    fs::remove(one.log);
    check_refused(one, "its only write is missing: journal.db-wal is cut, altered or gone");
  }
  SECTION("gone with the database") {
    fs::remove(killed.log);
    fs::remove(killed.path);
    for (int times = 0; times < 2; ++times) {
      CHECK(start(killed.path).refused ==
            killed.path + " is gone, and what was last written to it is not" + killed.aside);
    }
    replace(killed.mark, "x");
    CHECK(start(killed.path).refused ==
          killed.path + " is gone, and what was last written to it is not" + killed.aside);
  }
  SECTION("an older copy of a journal that was closed") {
    killed.say({kWrites + 2, kOtherBoot, true});
    CHECK(start(killed.path).refused ==
          killed.path + " is damaged (the last 2 of its 10 writes are missing: journal.db-wal is " +
              "cut, altered or gone)" + killed.aside);
  }
}

TEST_CASE("a host that went down may cost the last writes, and that is said", "[journal]") {
  const Killed killed;
  const std::string end =
      ": this host went down while a server ran, or the files are another "
      "host's; agents that still run bring back what they know";
  SECTION("perhaps none") {
    killed.say({kWrites - 3, kOtherBoot, false});
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note == killed.path + ": its last writes may be missing" + end);
    CHECK(started.keys == kWrites);
  }
  SECTION("some") {
    killed.say({kWrites + 3, kOtherBoot, false});
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note == killed.path + ": the last 3 of its 11 writes are missing" + end);
    CHECK(started.keys == kWrites);
  }
  SECTION("all") {
    killed.say({kWrites, kOtherBoot, false});
    fs::remove(killed.log);
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note == killed.path + ": all of its 8 writes are missing" + end);
    CHECK(started.keys == 0);
  }
}

TEST_CASE("a journal whose mark says nothing is taken with a word, unless it is empty",
          "[journal]") {
  const std::string unknown = ": nobody can tell whether its last writes are there";
  SECTION("gone") {
    const Killed killed;
    fs::remove(killed.mark);
    const Started started = start(killed.path);
    CHECK(started.refused.empty());
    CHECK(started.note == killed.path + ": journal.db-mark is missing" + unknown);
    CHECK(started.keys == kWrites);
  }
  SECTION("altered") {
    const Killed killed;
    replace(killed.mark, text_of({kWrites, this_boot(), false}) + text_of({}));
    CHECK(start(killed.path).note == killed.path + ": journal.db-mark cannot be read" + unknown);
  }
  SECTION("of an older copy") {
    const Killed killed;
    killed.say({kWrites - 2, this_boot(), false});
    CHECK(start(killed.path).note == killed.path + ": journal.db-mark is older than it" + unknown);
  }
  SECTION("gone with the log") {
    const Killed killed;
    fs::remove(killed.mark);
    fs::remove(killed.log);
    check_refused(killed, "it is empty, and journal.db-mark is missing");
    replace(killed.mark, "");
    check_refused(killed, "it is empty, and journal.db-mark cannot be read");
  }
  SECTION("of a version that wrote none") {
    const testing::TempDir folder;
    const std::string path = folder.path() + "/journal.db";
    Killed::write(path, 0, kWrites, "");
    fs::remove(path + "-mark");
    sqlite3* database = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
    CHECK(sqlite3_exec(database, "DROP TABLE commits", nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(database);
    const Started started = start(path);
    CHECK(started.refused.empty());
    CHECK(started.note == path + ": journal.db-mark is missing" + unknown);
    CHECK(started.keys == kWrites);
  }
}

}  // namespace muster::rendezvous
