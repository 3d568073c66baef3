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
#include "tests/support/temp_dir.h"

namespace muster::sim {
namespace {

std::string file_in(const testing::TempDir& folder) {
  return folder.path() + "/journal.db";
}

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
    options.lost_tails = 0;
    if (!options.hosted) options.server_kills = 0.05;
    const testing::TempDir folder;
    std::unique_ptr<rendezvous::Journal> journal = open(file_in(folder));
    World world(options);
    world.on_journal = [&](const std::vector<rendezvous::Action>& actions,
                           const std::vector<rendezvous::RunRecord>& truth) {
      const absl::Status committed = journal->commit(actions);
      INFO("seed " << seed << ": " << committed);
      REQUIRE(committed.ok());
      // Now and then, as after a kill at this very instant.
      if (world.steps() % 24 != 0) return;
      journal.reset();
      journal = open(file_in(folder));
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
