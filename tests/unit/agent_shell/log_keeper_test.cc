// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/log_keeper.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/stat.h>
#include <time.h>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "agent/shell/run_directory.h"
#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

constexpr std::int64_t kNow = 2'000'000'000;
constexpr std::int64_t kHour = 3600;

struct Fixture {
  Fixture() : job(dir.path() + "/job") { fs::create_directory(job); }

  std::string path(const std::string& name) const { return job + "/" + name; }

  // A run that nobody uses, last written to so long ago.
  void make(const std::string& name, std::size_t bytes = 100, std::int64_t hours_ago = 1) {
    fs::create_directories(path(name) + "/gen-0/rank-0");
    std::ofstream(path(name) + "/gen-0/rank-0/stdout.log") << std::string(bytes, 'x');
    lock_run_folder(path(name)).reset();
    for (const auto& entry : fs::recursive_directory_iterator(path(name)))
      age(entry.path(), hours_ago);
    age(path(name), hours_ago);
  }

  static void age(const std::string& file, std::int64_t hours_ago) {
    const timespec then{kNow - hours_ago * kHour, 0};
    const timespec both[2] = {then, then};
    REQUIRE(::utimensat(AT_FDCWD, file.c_str(), both, AT_SYMLINK_NOFOLLOW) == 0);
  }

  KeepReport keep(const LogKeep& rule, const std::string& own = "run-9") {
    return remove_old_runs(job, own, rule, kNow);
  }

  Names names() const {
    Names found;
    for (const auto& entry : fs::directory_iterator(job))
      found.insert(entry.path().filename());
    return found;
  }

  testing::TempDir dir;
  std::string job;
};

LogKeep runs(std::uint32_t most) {
  LogKeep keep;
  keep.runs = most;
  return keep;
}

TEST_CASE_METHOD(Fixture, "the newest runs stay, the one that starts among them") {
  for (const char* name : {"run-1", "run-2", "run-3", "run-4"})
    make(name);
  CHECK(keep(runs(5)).removed == 0);
  CHECK(keep(runs(3)).removed == 2);  // run-9 is the third, though it has no folder yet
  CHECK(names() == Names{"run-3", "run-4"});
  make("run-9");
  CHECK(keep(runs(3)).removed == 0);
  CHECK(keep(runs(1)).removed == 2);
  CHECK(names() == Names{"run-9"});
}

TEST_CASE_METHOD(Fixture, "the newest run stays, and the one that latest names") {
  for (const char* name : {"run-1", "run-2", "run-3"})
    make(name);
  fs::create_directory_symlink("run-1", path("latest"));
  CHECK(keep(runs(1)).removed == 1);
  CHECK(names() == Names{"run-1", "run-3", "latest"});
}

TEST_CASE_METHOD(Fixture, "a run that an agent uses stays, of whatever age and size") {
  for (const char* name : {"run-1", "run-2", "run-3"})
    make(name, 1U << 20, 5000);
  const UniqueFd one = lock_run_folder(path("run-1"));
  const UniqueFd another = lock_run_folder(path("run-1"));  // two nodes, one folder
  REQUIRE(one.valid());
  REQUIRE(another.valid());
  LogKeep young;
  young.age = 1h;
  CHECK(keep(young).removed == 1);
  CHECK(names() == Names{"run-1", "run-3"});
  LogKeep small;
  small.bytes = 1;
  CHECK(keep(small).removed == 0);
  CHECK(keep(runs(1)).removed == 0);
}

TEST_CASE_METHOD(Fixture, "age counts from the last thing written") {
  make("run-1", 100, 50);
  make("run-2", 100, 50);
  age(path("run-2/gen-0/rank-0/stdout.log"), 10);
  make("run-3", 100, 1);
  LogKeep young;
  young.age = 24h;
  CHECK(keep(young).removed == 1);
  CHECK(names() == Names{"run-2", "run-3"});
}

TEST_CASE_METHOD(Fixture, "the oldest go until the rest is small enough") {
  for (const char* name : {"run-1", "run-2", "run-3", "run-4"})
    make(name, 1U << 20);
  LogKeep small;
  small.bytes = (5U << 20) / 2;
  CHECK(keep(small).removed == 2);
  CHECK(names() == Names{"run-3", "run-4"});
}

TEST_CASE_METHOD(Fixture, "nothing else is ever touched") {
  make("run-1");
  make("run-8");
  fs::create_directories(path("server/journal"));
  fs::create_directories(path("running/not"));
  fs::create_directories(path("run-0-by-hand/kept"));  // no lock file of ours in it
  std::ofstream(path("run-0-file")) << "x";
  const std::string treasure = dir.path() + "/treasure";
  fs::create_directories(treasure);
  lock_run_folder(treasure).reset();
  std::ofstream(treasure + "/gold") << "x";
  fs::create_directory_symlink(treasure, path("run-0-link"));
  fs::create_directory_symlink(treasure, path("run-1/link"));
  fs::create_directory_symlink(treasure, path(".old-run-link"));
  CHECK(keep(runs(1)).removed == 1);
  CHECK(names() == Names{"run-8", "server", "running", "run-0-by-hand", "run-0-file", "run-0-link",
                         ".old-run-link"});
  CHECK(fs::exists(treasure + "/gold"));
  CHECK(fs::exists(path("run-0-by-hand/kept")));
}

TEST_CASE_METHOD(Fixture, "a job's folder that is a link is not followed") {
  make("run-1");
  make("run-2");
  const std::string link = dir.path() + "/other";
  fs::create_directory_symlink(job, link);
  CHECK(remove_old_runs(link, "run-9", runs(1), kNow).removed == 0);
  CHECK(remove_old_runs(dir.path() + "/missing", "run-9", runs(1), kNow).removed == 0);
  CHECK(names() == Names{"run-1", "run-2"});
}

TEST_CASE_METHOD(Fixture, "a removal that was cut short is gone on with") {
  make("run-8");
  fs::create_directories(path(".old-run-1/gen-0"));
  CHECK(keep(runs(20)).removed == 0);
  CHECK(names() == Names{"run-8"});
}

TEST_CASE_METHOD(Fixture, "rights that were taken away do not keep a run") {
  make("run-1");
  make("run-8");
  fs::permissions(path("run-1/gen-0"), fs::perms::none);
  CHECK(keep(runs(1)).removed == 1);
  CHECK(names() == Names{"run-8"});
}

TEST_CASE("a run's folder is locked from its making to its end") {
  const testing::TempDir dir;
  RunDirectory first(dir.path(), "j");
  first.set_run("1");
  REQUIRE(first.make_run().ok());
  {
    RunDirectory second(dir.path(), "j");
    second.set_run("2");
    REQUIRE(second.make_run().ok());
    CHECK(remove_old_runs(first.job_path(), "run-2", runs(1), kNow).removed == 0);
    first.set_run("3");  // it uses the first no more
    CHECK(remove_old_runs(first.job_path(), "run-2", runs(1), kNow).removed == 1);
  }
  CHECK(fs::exists(dir.path() + "/j/run-2/.lock"));
}

TEST_CASE_METHOD(Fixture, "the keeper does it once, beside the loop, and says so") {
  for (const char* name : {"run-1", "run-2", "run-3"})
    make(name);
  boost::asio::io_context io{1};
  std::string said;
  LogKeeper keeper(io, runs(2), [&](const std::string& line) { said = line; });
  keeper.run_started(job, path("run-3"));
  make("run-0");
  keeper.run_started(job, path("run-3"));
  const auto work = boost::asio::make_work_guard(io);
  const auto limit = std::chrono::steady_clock::now() + 30s;
  while (said.empty() && std::chrono::steady_clock::now() < limit)
    io.run_one_for(20ms);
  CHECK((said == "removed the logs of 1 old run(s) (--log-keep)" ||
         said == "removed the logs of 2 old run(s) (--log-keep)"));
  CHECK(names().contains("run-3"));
  CHECK_FALSE(names().contains("run-1"));
}

}  // namespace
}  // namespace muster::agent
