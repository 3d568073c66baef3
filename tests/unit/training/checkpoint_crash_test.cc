// SPDX-License-Identifier: Apache-2.0
//
// Death and failure at every single call of a save.
#include <algorithm>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/training/faulty_file_system.h"
#include "tests/unit/training/scratch.h"
#include "tests/unit/training/small_state.h"
#include "worker_runtime/checkpoint/checkpoint_store.h"

namespace muster::runtime {
namespace {

using test::FaultyFileSystem;
using test::Notes;
using test::same;
using test::Scratch;
using test::small_layout;
using test::small_manifest;
using test::small_options;
using test::small_tensors;

absl::StatusOr<bool> save(CheckpointStore& store, std::uint64_t step) {
  return store.save(small_manifest(step), small_layout(), small_tensors(static_cast<float>(step)));
}

// Opens and saves step 30 into a directory that keeps one checkpoint; used up to the fault.
absl::StatusOr<bool> open_and_save(FileSystem& files, const std::string& directory,
                                   std::uint64_t step, Generation generation,
                                   const std::string& nonce) {
  CheckpointStore::Options options = small_options(directory, {"r", generation}, nonce);
  options.keep = 1;
  CheckpointStore store(files, options, [](const std::string&) {});
  const absl::Status opened = store.open();
  if (!opened.ok()) return opened;
  return save(store, step);
}

int calls_of_a_save() {
  const Scratch dir = Scratch::in_memory();
  FaultyFileSystem counting([](int, const std::string&) { return absl::OkStatus(); });
  REQUIRE(open_and_save(counting, dir.path(), 10, 0, "n0").value());
  REQUIRE(open_and_save(counting, dir.path(), 20, 1, "n1").value());
  const int before = counting.calls();
  REQUIRE(open_and_save(counting, dir.path(), 30, 2, "n2").value());
  return counting.calls() - before;
}

// What must hold whatever happened: the newest that loads is 20 or 30, whole; and the next
// generation saves 40 as if nothing had been.
void check_recovers(const std::string& directory) {
  Notes notes;
  CheckpointStore::Options options = small_options(directory, {"r", 3}, "n3");
  options.keep = 1;
  CheckpointStore store(posix_file_system(), options, notes.sink());
  REQUIRE(store.open().ok());
  const auto loaded = store.load_newest(small_layout());
  REQUIRE(loaded.ok());
  REQUIRE(loaded->has_value());
  const std::uint64_t step = (*loaded)->manifest.counters.step;
  CHECK((step == 20 || step == 30));
  CHECK(same((*loaded)->tensors, small_tensors(static_cast<float>(step))));
  REQUIRE(save(store, 40).value());
  CHECK(store.load_newest(small_layout()).value()->manifest.counters.step == 40);
  CHECK(posix_file_system().list(directory).value() ==
        std::vector<std::string>{"FENCE", "LATEST", "step-40"});
}

TEST_CASE("killed at any call of a save, resume finds a complete checkpoint") {
  const int calls = calls_of_a_save();
  REQUIRE(calls > 50);
  int published = 0;
  for (int fatal = 0; fatal < calls; ++fatal) {
    INFO("killed at call " << fatal);
    const Scratch dir = Scratch::in_memory();
    REQUIRE(open_and_save(posix_file_system(), dir.path(), 20, 1, "n1").value());
    const pid_t child = ::fork();
    if (child == 0) {
      FaultyFileSystem files([fatal](int call, const std::string&) {
        if (call == fatal) ::_exit(9);
        return absl::OkStatus();
      });
      ::_exit(open_and_save(files, dir.path(), 30, 2, "n2").ok() ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 9);
    published += posix_file_system().read(dir / "step-30/manifest.json").ok() ? 1 : 0;
    check_recovers(dir.path());
  }
  CHECK(published > 5);  // deaths after the moment of publication were among them
  CHECK(published < calls - 40);
}

TEST_CASE("failing at any call of a save, the error is told and nothing is lost") {
  const int calls = calls_of_a_save();
  for (int fatal = 0; fatal < calls; ++fatal) {
    INFO("no space at call " << fatal);
    const Scratch dir = Scratch::in_memory();
    REQUIRE(open_and_save(posix_file_system(), dir.path(), 20, 1, "n1").value());
    bool renamed = false;
    bool synced = false;  // published for good: later trouble is only noted
    FaultyFileSystem files([&](int call, const std::string& words) {
      if (call == fatal) return absl::ResourceExhaustedError("no space left: " + words);
      synced = synced || (renamed && words.starts_with("syncdir"));
      renamed = renamed || (words.starts_with("rename") && words.ends_with("step-30"));
      return absl::OkStatus();
    });
    const auto saved = open_and_save(files, dir.path(), 30, 2, "n2");
    CHECK(saved.ok() == synced);
    if (!saved.ok()) {
      CHECK_THAT(std::string(saved.status().message()), Catch::Contains("no space left"));
    }
    check_recovers(dir.path());
  }
}

TEST_CASE("bytes are on stable storage before the name that promises them") {
  const Scratch dir = Scratch::in_memory();
  std::vector<std::string> log;
  FaultyFileSystem files([&](int, const std::string& words) {
    log.push_back(words);
    return absl::OkStatus();
  });
  REQUIRE(open_and_save(files, dir.path(), 30, 0, "n0").value());
  const auto at = [&](const std::string& begin, const std::string& end) {
    const auto found = std::find_if(log.begin(), log.end(), [&](const std::string& words) {
      return words.starts_with(begin) && words.ends_with(end);
    });
    REQUIRE(found != log.end());
    return found - log.begin();
  };
  const auto published = at("rename", "/step-30");
  const auto directory_synced = at("syncdir", "step-30.tmp-g0-n0");
  const auto manifest_synced = at("sync ", "manifest.json");
  CHECK(directory_synced < published);
  CHECK(manifest_synced < directory_synced);
  for (const char* kind : kStreamKinds) {
    for (const char* index : {"0", "1", "2"}) {
      const std::string file = std::string(kind) + "-" + index + ".f32";
      CHECK(at("sync ", file) < at("create", "manifest.json"));
      CHECK(at("write ", file) < at("sync ", file));
    }
  }
  CHECK(log[static_cast<std::size_t>(published) + 1] == "syncdir " + dir.path());
  CHECK(at("create", "LATEST.tmp-n0") > published);
  CHECK(at("sync ", "FENCE.tmp-n0") < at("rename", "/FENCE"));
}

TEST_CASE("a writer that is fenced off between its last byte and its name is stopped") {
  const Scratch dir = Scratch::in_memory();
  REQUIRE(open_and_save(posix_file_system(), dir.path(), 20, 1, "n1").value());
  FaultyFileSystem files([&](int, const std::string& words) {
    if (words.starts_with("sync ") && words.ends_with("manifest.json")) {
      CHECK(raise_fence(posix_file_system(), dir.path(), {"r", 2}, "n2").ok());
    }
    return absl::OkStatus();
  });
  CHECK(absl::IsAborted(open_and_save(files, dir.path(), 30, 1, "late").status()));
  check_recovers(dir.path());
}

}  // namespace
}  // namespace muster::runtime
