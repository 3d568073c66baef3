// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/termination_log.h"

#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

using nlohmann::json;

TerminationFacts facts() {
  Failure cause;
  cause.kind = FailureKind::kSignal;
  cause.node = "gpu-7";
  cause.rank = 12;
  cause.signal = 11;
  cause.stderr_tail = "first line\nlast line\n";
  return {"train", "run-1", "gpu-7", 139, ExitClass::kWorker, "rank 12 was killed by SIGSEGV",
          cause};
}
std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the termination log says whose code it is and what came first") {
  const json document = json::parse(termination_text(facts()));
  CHECK(document["exit_code"] == 139);
  CHECK(document["exit_class"] == "worker");
  CHECK(document["first_cause"]["rank"] == 12);
  CHECK(document["first_cause"]["signal"] == "SIGSEGV");
  CHECK(document["first_cause"]["stderr_tail"] == "first line\nlast line\n");
  TerminationFacts early = facts();
  early.exit_code.reset();
  early.exit_class.reset();
  CHECK_FALSE(json::parse(termination_text(early)).contains("exit_code"));
}

TEST_CASE("what is too long is cut to whole JSON of 4096 bytes, the last words from their front") {
  for (const std::string& filler : {std::string("x"), std::string("\n"), std::string("\xff"),
                                    std::string("\xc3\xa4"), std::string("\x01")}) {
    for (const std::size_t count : {std::size_t{3000}, std::size_t{4096}, std::size_t{20'000}}) {
      TerminationFacts long_ones = facts();
      std::string& tail = long_ones.first_cause->stderr_tail;
      for (std::size_t i = 0; i < count; ++i)
        tail += filler;
      tail += "THE END";
      const std::string text = termination_text(long_ones);
      REQUIRE(text.size() <= kTerminationBytes);
      const json document = json::parse(text);
      const std::string kept = document["first_cause"]["stderr_tail"];
      CHECK(kept.ends_with("THE END"));
      CHECK(document["exit_code"] == 139);
      long_ones.text = std::string(count, 'y');
      long_ones.first_cause->detail = tail;
      CHECK(json::accept(termination_text(long_ones)));
      CHECK(termination_text(long_ones).size() <= kTerminationBytes);
    }
  }
}

TEST_CASE("it is replaced as a whole, and empty after a success") {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/log";
  TerminationLog log(path);
  REQUIRE(log.write(facts()).ok());
  TerminationFacts shorter = facts();
  shorter.first_cause.reset();
  REQUIRE(log.write(shorter).ok());
  CHECK(contents(path) == termination_text(shorter));
  log.clear();
  CHECK(contents(path).empty());
  CHECK(TerminationLog("").write(facts()).ok());
}

TEST_CASE("where nothing can be renamed it is written over in place") {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/log";
  std::ofstream(path) << std::string(5000, 'z');
  struct stat before {};
  REQUIRE(::stat(path.c_str(), &before) == 0);
  // As in a pod: the file may be written, its folder may not.
  const bool root = ::geteuid() == 0;
  TerminationLog log(root ? "/proc/self/fd/" + std::to_string(::open(path.c_str(), O_RDWR)) : path);
  if (!root) REQUIRE(::chmod(dir.path().c_str(), 0555) == 0);
  CHECK(log.write(facts()).ok());
  if (!root) REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
  struct stat after {};
  REQUIRE(::stat(path.c_str(), &after) == 0);
  CHECK(after.st_ino == before.st_ino);
  CHECK(contents(path) == termination_text(facts()));
}

TEST_CASE("a termination log that cannot be written is complained of once") {
  TerminationLog log("/no/such/folder/log");
  CHECK_THAT(std::string(log.write(facts()).message()), Catch::Contains("/no/such/folder/log"));
  CHECK(log.write(facts()).ok());
}

}  // namespace muster::agent
