// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <vector>

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

// One writer of one generation.
struct Writer {
  explicit Writer(const std::string& directory, Fence fence = {"r", 0}, std::string nonce = "n0",
                  std::int64_t keep = 3)
      : store(posix_file_system(), options(directory, fence, nonce, keep), notes.sink()) {}
  static CheckpointStore::Options options(const std::string& directory, const Fence& fence,
                                          const std::string& nonce, std::int64_t keep) {
    CheckpointStore::Options made = small_options(directory, fence, nonce);
    made.keep = keep;
    return made;
  }
  absl::StatusOr<bool> save(std::uint64_t step) {
    return store.save(small_manifest(step), small_layout(),
                      small_tensors(static_cast<float>(step)));
  }
  Notes notes;
  CheckpointStore store;
};

void flip_byte(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

std::vector<std::string> names(const std::string& directory) {
  auto listed = posix_file_system().list(directory);
  REQUIRE(listed.ok());
  return *listed;
}

TEST_CASE("what was saved is loaded, bit for bit") {
  const Scratch dir;
  Writer writer(dir / "deep/er");
  REQUIRE(writer.store.open().ok());
  REQUIRE(writer.save(20).value());
  const auto loaded = writer.store.load_newest(small_layout());
  REQUIRE(loaded.ok());
  REQUIRE(loaded->has_value());
  CHECK(same((*loaded)->tensors, small_tensors(20)));
  CHECK((*loaded)->manifest.counters == small_manifest(20).counters);
  CHECK((*loaded)->manifest.run == "r");
  CHECK((*loaded)->manifest.config == small_manifest(20).config);
  CHECK((*loaded)->manifest.chunks.size() == 9);  // 17 elements by 7, three streams
  CHECK(names(dir / "deep/er") == std::vector<std::string>{"FENCE", "LATEST", "step-20"});
  CHECK(writer.notes.lines.empty());
}

TEST_CASE("tensors are found by name: another order of the layout loads the same") {
  const Scratch dir;
  Writer writer(dir.path());
  REQUIRE(writer.store.open().ok());
  REQUIRE(writer.save(1).value());
  FlatLayout turned = small_layout();
  std::swap(turned.tensors[0], turned.tensors[1]);
  turned.tensors[0].offset = 0;
  turned.tensors[1].offset = 64;
  const auto loaded = writer.store.load(dir / "step-1", turned);
  REQUIRE(loaded.ok());
  CHECK(loaded->tensors.master[64] == small_tensors(1).master[0]);
  CHECK(loaded->tensors.v[11] == small_tensors(1).v[75]);
}

TEST_CASE("an empty directory holds nothing to resume from") {
  const Scratch dir;
  Writer writer(dir.path());
  REQUIRE(writer.store.open().ok());
  CHECK_FALSE(writer.store.load_newest(small_layout()).value().has_value());
}

TEST_CASE("what does not verify is passed over and named") {
  const Scratch dir;
  Writer writer(dir.path());
  REQUIRE(writer.store.open().ok());
  for (const std::uint64_t step : {10, 20, 30})
    REQUIRE(writer.save(step).value());
  SECTION("a chunk with one flipped bit") {
    flip_byte(dir / "step-30/m-1.f32", 3);
    CHECK(writer.store.load_newest(small_layout()).value()->manifest.counters.step == 20);
    CHECK(writer.notes.has("step-30/m-1.f32: its checksum does not match"));
  }
  SECTION("a manifest with one flipped bit, and a chunk cut short below it") {
    flip_byte(dir / "step-30/manifest.json", 40);
    fs::resize_file(dir / "step-20/v-0.f32", 4);
    CHECK(writer.store.load_newest(small_layout()).value()->manifest.counters.step == 10);
    CHECK(writer.notes.has("step-30/manifest.json"));
    CHECK(writer.notes.has("step-20/v-0.f32: 4 bytes"));
  }
  SECTION("a missing manifest, a missing chunk, a wrong name") {
    fs::remove(dir / "step-30/manifest.json");
    fs::remove(dir / "step-20/master-0.f32");
    fs::rename(dir / "step-10", dir / "step-40");
    CHECK_FALSE(writer.store.load_newest(small_layout()).value().has_value());
    CHECK(writer.notes.has("step-40: its manifest says step 10"));
    CHECK(writer.notes.has("step-20/master-0.f32"));
  }
  SECTION("a left-over of a writer that died") {
    fs::create_directory(dir / "step-40.tmp-g0-dead");
    CHECK(writer.store.load_newest(small_layout()).value()->manifest.counters.step == 30);
    CHECK(writer.notes.has("step-40.tmp-g0-dead: it was never finished"));
  }
}

TEST_CASE("a complete checkpoint of another model is an error, not something to pass over") {
  const Scratch dir;
  Writer writer(dir.path());
  REQUIRE(writer.store.open().ok());
  REQUIRE(writer.save(1).value());
  FlatLayout other = small_layout();
  other.tensors[1].dims = {4, 3};
  const auto loaded = writer.store.load_newest(other);
  CHECK(absl::IsFailedPrecondition(loaded.status()));
  CHECK_THAT(std::string(loaded.status().message()), Catch::Contains("a has another shape"));
}

TEST_CASE("an existing complete step is never replaced") {
  const Scratch dir;
  Writer first(dir.path());
  REQUIRE(first.store.open().ok());
  REQUIRE(first.save(10).value());
  Writer second(dir.path(), {"r", 1}, "n1");
  REQUIRE(second.store.open().ok());
  const auto again = second.store.save(small_manifest(10), small_layout(), small_tensors(1000));
  REQUIRE(again.ok());
  CHECK_FALSE(*again);
  CHECK(second.notes.has("is there already and complete"));
  CHECK(same(second.store.load_newest(small_layout()).value()->tensors, small_tensors(10)));
  CHECK(names(dir.path()) == std::vector<std::string>{"FENCE", "LATEST", "step-10"});
}

TEST_CASE("a broken step of the same number is moved out of the way") {
  const Scratch dir;
  Writer writer(dir.path(), {"r", 0}, "n0", 1);
  REQUIRE(writer.store.open().ok());
  REQUIRE(writer.save(10).value());
  flip_byte(dir / "step-10/master-0.f32", 0);
  REQUIRE(writer.save(10).value());
  CHECK(same(writer.store.load_newest(small_layout()).value()->tensors, small_tensors(10)));
  CHECK(fs::exists(dir / "step-10.bad-n0"));
  REQUIRE(writer.save(20).value());  // retention takes the broken one with the old one
  CHECK(names(dir.path()) == std::vector<std::string>{"FENCE", "LATEST", "step-20"});
}

TEST_CASE("retention keeps the newest and clears what dead writers left") {
  const Scratch dir;
  fs::create_directory(dir / "step-5.tmp-g7-dead");
  dir.write("step-5.tmp-g7-dead/master-0.f32", "x");
  dir.write("LATEST.tmp-dead", "x");
  dir.write("PROBE-dead", "x");
  dir.write("notes.txt", "the user's own");
  Writer writer(dir.path(), {"r", 0}, "n0", 2);
  REQUIRE(writer.store.open().ok());
  // A newer generation's: it came after our fence and is not ours to touch.
  fs::create_directory(dir / "step-9.tmp-g8-live");
  for (const std::uint64_t step : {10, 20, 30, 100})
    REQUIRE(writer.save(step).value());
  CHECK(names(dir.path()) == std::vector<std::string>{"FENCE", "LATEST", "notes.txt", "step-100",
                                                      "step-30", "step-9.tmp-g8-live"});
}

TEST_CASE("a fenced-off writer publishes nothing") {
  const Scratch dir;
  Writer old(dir.path(), {"r", 0}, "n0");
  REQUIRE(old.store.open().ok());
  REQUIRE(old.save(10).value());
  SECTION("a newer generation of the run") {
    Writer young(dir.path(), {"r", 1}, "n1");
    REQUIRE(young.store.open().ok());
  }
  SECTION("another run") {
    Writer young(dir.path(), {"other", 0}, "n1");
    REQUIRE(young.store.open().ok());
  }
  SECTION("somebody cleared the directory") {
    fs::remove(dir / "FENCE");
  }
  const auto late = old.save(20);
  CHECK(absl::IsAborted(late.status()));
  CHECK_FALSE(fs::exists(dir / "step-20"));
  for (const std::string& name : names(dir.path())) {
    CHECK_THAT(name, !Catch::Contains("tmp"));
  }
}

TEST_CASE("an older generation never lowers the fence; another run may take over") {
  const Scratch dir;
  REQUIRE(Writer(dir.path(), {"r", 3}, "n3").store.open().ok());
  Writer old(dir.path(), {"r", 2}, "n2");
  const absl::Status refused = old.store.open();
  CHECK(absl::IsAborted(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("run r, generation 3"));
  CHECK(read_fence(posix_file_system(), dir.path()).value() == Fence{"r", 3});
  CHECK(Writer(dir.path(), {"r", 3}, "again").store.open().ok());
  CHECK(Writer(dir.path(), {"s", 0}, "s0").store.open().ok());
  CHECK(read_fence(posix_file_system(), dir.path()).value() == Fence{"s", 0});
}

TEST_CASE("a fence that does not read is replaced at the start and stops a publication") {
  const Scratch dir;
  dir.write("FENCE", "{\"run\": 3");
  Writer writer(dir.path());
  REQUIRE(writer.store.open().ok());
  CHECK(read_fence(posix_file_system(), dir.path()).value() == Fence{"r", 0});
  dir.write("FENCE", "garbage");
  CHECK(absl::IsDataLoss(writer.save(10).status()));
  CHECK_FALSE(fs::exists(dir / "step-10"));
}

TEST_CASE("a directory that cannot be is an error that names it") {
  const Scratch dir;
  dir.write("file", "x");
  Writer writer(dir / "file/ckpt");
  const absl::Status status = writer.store.open();
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), Catch::Contains(dir / "file"));
}

TEST_CASE("the probe is a file that others can read") {
  const Scratch dir;
  Writer writer(dir.path());
  REQUIRE(writer.store.open().ok());
  REQUIRE(writer.store.write_probe().ok());
  const auto bytes = posix_file_system().read(writer.store.probe_path());
  REQUIRE(bytes.ok());
  CHECK(bytes->size() == 2);
  writer.store.remove_probe();
  CHECK_FALSE(fs::exists(writer.store.probe_path()));
}

}  // namespace
}  // namespace muster::runtime
