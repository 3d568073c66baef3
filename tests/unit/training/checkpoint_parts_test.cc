// SPDX-License-Identifier: Apache-2.0
//
// A part of a checkpoint that is there and still no part of one: named, passed over, replaced.
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/unit/training/scratch.h"
#include "tests/unit/training/small_state.h"
#include "worker_runtime/checkpoint/checkpoint_store.h"

namespace muster::runtime {
namespace {

namespace fs = std::filesystem;
using test::Notes;
using test::same;
using test::Scratch;
using test::small_layout;
using test::small_manifest;
using test::small_options;
using test::small_tensors;

// Puts something else where `path` was. Each returns what the note must say of it.
std::string directory(const std::string& path) {
  fs::remove(path);
  fs::create_directory(path);
  return ": is a directory, not a file";
}
std::string full_directory(const std::string& path) {
  directory(path);
  fs::create_directory(path + "/inside");
  return ": is a directory, not a file";
}
std::string loop(const std::string& path) {
  fs::remove(path);
  fs::create_symlink(fs::path(path).filename(), path);
  return ": cannot open: ";
}
std::string dangling(const std::string& path) {
  fs::remove(path);
  fs::create_symlink("nowhere", path);
  return ": cannot open: ";
}
std::string endless(const std::string& path) {
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  return ": is not a regular file";
}
std::string fifo(const std::string& path) {
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  return ": is not a regular file";
}
std::string socket_file(const std::string& path) {
  fs::remove(path);
  REQUIRE(::mknod(path.c_str(), S_IFSOCK | 0600, 0) == 0);
  return ": cannot open: ";
}
std::string shorter(const std::string& path) {
  fs::resize_file(path, fs::file_size(path) - 9);
  return path.ends_with(".json") ? ": this text has no closing" : " bytes, the manifest says ";
}
std::string empty(const std::string& path) {
  fs::resize_file(path, 0);
  return path.ends_with(".json") ? ": 1:1: ends too early" : ": 0 bytes, the manifest says ";
}
std::string unreadable(const std::string& path) {
  fs::permissions(path, fs::perms::none);
  return ": cannot open: Permission denied";
}

using Spoiler = std::string (*)(const std::string&);
constexpr Spoiler kSpoilers[] = {directory, full_directory, loop,  dangling, endless,
                                 fifo,      socket_file,    empty, shorter,  unreadable};

TEST_CASE("a part that is no file is named, passed over, and does not stop the next save") {
  for (const Spoiler spoil : kSpoilers) {
    // root may read everything.
    if (spoil == &unreadable && ::geteuid() == 0) continue;
    for (const char* part : {"master-0.f32", "v-2.f32", "manifest.json"}) {
      const Scratch dir;
      Notes notes;
      CheckpointStore::Options options = small_options(dir.path());
      options.keep = 1;
      CheckpointStore store(posix_file_system(), options, notes.sink());
      REQUIRE(store.open().ok());
      REQUIRE(store.save(small_manifest(10), small_layout(), small_tensors(10)).value());
      fs::rename(dir / "step-10", dir / "kept");
      REQUIRE(store.save(small_manifest(20), small_layout(), small_tensors(20)).value());
      fs::rename(dir / "kept", dir / "step-10");

      const std::string path = dir / "step-20/" + part;
      const std::string word = spoil(path);
      INFO(path << word);
      const auto loaded = store.load_newest(small_layout());
      REQUIRE(loaded.ok());
      REQUIRE(loaded->has_value());
      CHECK((*loaded)->manifest.counters.step == 10);
      CHECK(same((*loaded)->tensors, small_tensors(10)));
      REQUIRE(notes.lines.size() == 1);
      CHECK_THAT(notes.lines[0], Catch::StartsWith("ignoring an incomplete checkpoint: " + path));
      CHECK_THAT(notes.lines[0], Catch::Contains(word));

      // The run comes to the same step again.
      REQUIRE(store.save(small_manifest(20), small_layout(), small_tensors(20)).value());
      CHECK(store.load_newest(small_layout()).value()->manifest.counters.step == 20);
      REQUIRE(store.save(small_manifest(30), small_layout(), small_tensors(30)).value());
      CHECK_FALSE(fs::exists(dir / "step-10"));
      CHECK_FALSE(fs::exists(dir / "step-20"));
    }
  }
}

TEST_CASE("retention removes a link to a checkpoint, not the checkpoint") {
  const Scratch dir;
  Notes notes;
  CheckpointStore::Options options = small_options(dir / "checkpoints");
  options.keep = 1;
  CheckpointStore store(posix_file_system(), options, notes.sink());
  REQUIRE(store.open().ok());
  REQUIRE(store.save(small_manifest(10), small_layout(), small_tensors(10)).value());
  fs::rename(dir / "checkpoints/step-10", dir / "archive");
  fs::create_symlink(dir / "archive", dir / "checkpoints/step-10");
  REQUIRE(store.save(small_manifest(20), small_layout(), small_tensors(20)).value());
  CHECK_FALSE(fs::is_symlink(dir / "checkpoints/step-10"));
  CHECK(store.load(dir / "archive", small_layout()).ok());
  CHECK(notes.lines.empty());
}

}  // namespace
}  // namespace muster::runtime
