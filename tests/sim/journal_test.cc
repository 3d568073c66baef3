// SPDX-License-Identifier: Apache-2.0
//
// What real runs make the server write, through the real journal: it must give back exactly what
// a journal in memory holds, whatever the machine was in the middle of.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>

#include "launcher/rendezvous/shell/sqlite_journal.h"
#include "tests/sim/world.h"

namespace muster::sim {
namespace {

class Folder {
 public:
  Folder() {
    std::string path = std::filesystem::temp_directory_path() / "muster-test-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file() const { return path_ + "/journal.db"; }

 private:
  std::string path_;
};

std::unique_ptr<rendezvous::Journal> open(const std::string& path) {
  auto journal = rendezvous::open_sqlite_journal(path);
  INFO(journal.status());
  REQUIRE(journal.ok());
  return *std::move(journal);
}

void compare(const std::vector<rendezvous::RunRecord>& read,
             const std::vector<rendezvous::RunRecord>& truth) {
  REQUIRE(read.size() == truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    CHECK(read[i].job == truth[i].job);
    CHECK(read[i].progress == truth[i].progress);
    CHECK(read[i].life == truth[i].life);
    CHECK(read[i].nodes == truth[i].nodes);
  }
}

}  // namespace

TEST_CASE("the journal on disk is the journal in memory, under every seed") {
  int restarts = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SimOptions options = SimOptions::from_seed(seed);
    options.journaled = true;
    if (!options.hosted) options.server_kills = 0.05;
    const Folder folder;
    std::unique_ptr<rendezvous::Journal> journal = open(folder.file());
    World world(options, false);
    world.on_journal = [&](const std::vector<rendezvous::Action>& actions,
                           const std::vector<rendezvous::RunRecord>& truth) {
      const absl::Status committed = journal->commit(actions);
      INFO("seed " << seed << ": " << committed);
      REQUIRE(committed.ok());
      // Now and then, as after a kill at this very instant.
      if (world.steps() % 24 != 0) return;
      journal.reset();
      journal = open(folder.file());
      const auto contents = journal->read();
      INFO(contents.status());
      REQUIRE(contents.ok());
      compare(contents->runs, truth);
      ++restarts;
    };
    world.run();
    INFO("seed " << seed);
    CHECK(world.failure().value_or("nothing is wrong") == "nothing is wrong");
  }
  CHECK(restarts > 60);
}

}  // namespace muster::sim
